"""From what people bring to labelled shots: labels are checked and matched first, then images are encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from torch import Tensor

from masil.collapse import Embedding
from masil.data import Images
from masil.errors import InputError
from masil.learner.encoder import Encoder, Given
from masil.learner.frame import by_images, read_vectors
from masil.learner.inputs import Label, class_codes, read_labels
from masil.learner.settings import Settings, read_settings
from masil.learner.shots import Shots, take_power

if TYPE_CHECKING:
    from masil.learner.masil import Masil


@final
@dataclass(frozen=True, eq=False)
class BaseSession:
    """A base session that is read and not yet learnt."""

    encoder: Encoder
    settings: Settings
    shots: Shots
    crops: Tensor | None  # a^p of crops, for the bank
    class_vectors: Tensor | None  # [k d'], in the order of the shots' labels


def read_base_session(model: Masil, images: Any, labels: Any) -> BaseSession:
    """Check parameters and labels of a base session, then run its images through the backbone."""
    settings = read_settings(model, stacklevel=3)
    encoder = Encoder.make(model.backbone, model.weights, model.seed, model.device)
    given, names = read_labelled(encoder, images, labels, ())
    classes = tuple(sorted(set(names)))
    if len(classes) < 2:
        raise InputError(f"The base session teaches {len(classes)} class; to tell classes apart takes at least 2.")
    vectors, certain = read_vectors(model.class_vectors, model.class_names, model.embedding, classes)
    codes = class_codes(names, classes)
    x = take_power(encoder.activations(given), model.power)
    crops = encoder.crops(given, model.crops, model.side, model.seed)
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
