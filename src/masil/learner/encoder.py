"""From what people bring to labelled shots: labels are checked first, then images run through the backbone, once.

Where there is no backbone, activations are taken as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, final

import torch
from torch import Tensor

from masil.backbones import Backbone, Engine, create, extract_with, open_engine, refuse_impossible
from masil.collapse import Embedding
from masil.data import Images, crops, read_images
from masil.errors import DataError, InputError
from masil.learner.frame import by_images, read_vectors
from masil.learner.inputs import Label, class_codes, read_activations, read_labels
from masil.learner.rows import Shots, take_power
from masil.learner.settings import Settings, read_settings
from masil.progress import bar

if TYPE_CHECKING:
    from masil.learner.masil import Masil

BATCH = 32  # crops

Given = Tensor | Images  # activations [n d], or images that are still to be looked at
Seen = dict[tuple[Any, ...], tuple[Tensor, Tensor | None]]  # activations of images and of crops, by the way of looking


@final
class Encoder:
    """Gives activations [n d] of images, or takes them as they come where there is no backbone."""

    def __init__(self, backbone: Backbone | None, device: str = "auto", *, packaged: bool = False) -> None:
        self.backbone = backbone
        self.device = device
        self.features = None if backbone is None else backbone.features  # None: whatever comes first
        self.packaged = packaged  # whether its weights came with pip, so that a name is enough to find them again
        self._engine: Engine | None = None

    @classmethod
    def make(cls, backbone: str | Backbone | None, weights: str | Path | None, seed: int, device: str) -> Self:
        """Use the backbone of that name with its weights, or the one that is given, or none."""
        if backbone is None or isinstance(backbone, Backbone):
            return cls(backbone if backbone is None else backbone.eval(), device)
        if not isinstance(backbone, str):
            raise InputError(
                f"The backbone is a {type(backbone).__name__}; give the name of one, a masil.backbones.Backbone, or "
                "None for ready activations."
            )
        network = create(backbone, weights=weights) if weights is not None else create(backbone, seed=seed)
        return cls(network, device, packaged=weights == "imagenet")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_engine": None}  # an open engine can be neither copied nor pickled; it opens again

    def read(self, images: Any) -> Given:
        """Give images as `Images`, or activations as float32 [n d] of the width that is known."""
        if self.backbone is not None:
            return read_images(images)
        if isinstance(images, Images):
            raise InputError("This learner has no backbone, so it takes activations [n d] and not images.")
        activations = read_activations(images, self.features)
        self.features = activations.shape[1]
        return activations

    def activations(self, given: Given, faults: dict[int, DataError] | None = None) -> Tensor:
        """Pass what `read` gave through the backbone, once.

        The first image that cannot be read is raised as a DataError. Where `faults` are given, it is put there instead,
        by its position, and its row means nothing.
        """
        if isinstance(given, Tensor):
            return given
        assert self.backbone is not None
        if not len(given):
            return torch.empty(0, self.backbone.features)
        return extract_with(self._opened(), given, self.backbone.framing, faults=faults)

    def crops(self, given: Given, count: int, side: int | None, seed: int) -> Tensor | None:
        """Give the activations of `count` random crops τ(x) of each image, crop j of image i in row i·count + j.

        None where there are no pixels to cut, or no crops are wanted. The paper's sides are 18 of 32 px and 64 of 224.
        """
        if isinstance(given, Tensor) or count == 0:
            return None
        assert self.backbone is not None
        framing = self.backbone.framing
        side = side or max(1, 64 * framing.crop // 224 if framing.crop >= 128 else 18 * framing.crop // 32)
        generator = torch.Generator().manual_seed(seed)
        activations = torch.empty(len(given) * count, self.backbone.features)
        step = max(1, BATCH // count)
        with bar("Looking at crops", len(given)) as advance:
            for start in range(0, len(given), step):
                pixels = given.load(slice(start, start + step), framing)
                squares = crops(pixels, count, side, framing.crop, generator=generator)
                rows = self._opened().run(squares)
                refuse_impossible(rows, given, start, count)
                activations[start * count : (start + step) * count] = rows
                advance(len(pixels))
        return activations

    def _opened(self) -> Engine:
        """Give the engine, which stays open: to export and check a graph takes longer than a few images do."""
        assert self.backbone is not None
        if self._engine is None:
            self._engine = open_engine(self.backbone, device=self.device)
        return self._engine


@final
@dataclass(frozen=True, eq=False)
class BaseSession:
    """A base session that is read and not yet learnt."""

    encoder: Encoder
    settings: Settings
    shots: Shots
    crops: Tensor | None  # a^p of crops, for the bank
    class_vectors: Tensor | None  # [k d'], in the order of the shots' labels


def read_base_session(model: Masil, images: Any, labels: Any, seen: Seen | None = None) -> BaseSession:
    """Check parameters and labels of a base session, then run its images through the backbone.

    With `seen`, the same images are run only once for all models that look at them in the same way.
    """
    settings = read_settings(model, stacklevel=3)
    encoder = Encoder.make(model.backbone, model.weights, model.seed, model.device)
    given, names = read_labelled(encoder, images, labels, ())
    classes = tuple(sorted(set(names)))
    if len(classes) < 2:
        raise InputError(f"The base session teaches {len(classes)} class; to tell classes apart takes at least 2.")
    vectors, certain = read_vectors(model.class_vectors, model.class_names, model.embedding, classes)
    codes = class_codes(names, classes)
    way = (model.backbone, model.weights, model.crops, model.side, model.device, model.seed)
    looked = (seen or {}).get(way) or (
        encoder.activations(given), encoder.crops(given, model.crops, model.side, model.seed)
    )  # fmt: skip
    if seen is not None:
        seen[way] = looked
    x, crops = take_power(looked[0], model.power), looked[1]
    if vectors is not None and not certain and isinstance(model.embedding, Embedding):
        vectors = by_images(vectors, model.embedding.eval(), x, codes)
    crops = None if crops is None else take_power(crops, model.power)
    return BaseSession(encoder, settings, Shots(x, codes, classes), crops, class_vectors=vectors)


def read_labelled(encoder: Encoder, images: Any, labels: Any, known: Sequence[Label]) -> tuple[Given, list[Label]]:
    """Give images, of which none is decoded yet, and one label for each, of the kind that is known already."""
    given = encoder.read(images)
    if labels is None and isinstance(images, Images) and images.labelled:
        labels = images.labels
    names = read_labels(labels, len(given), known)
    if not names:
        raise InputError("There are no images in this session; it needs at least one.")
    return given, names
