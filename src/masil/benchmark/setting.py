"""What every method is given alike: a protocol, its data set, and the frozen backbone through which it is seen."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from torch import Tensor

from masil.backbones import ActivationStore, Backbone, create, find_views
from masil.benchmark.base_sessions import BaseSession
from masil.data import Dataset, Images, load
from masil.errors import InputError, lookup
from masil.methods import Rehearsal
from masil.protocol import PROTOCOLS, Protocol, sessions
from masil.training import USUAL, FrameLoss, Recipe, Trained, load_trained, make_loss
from masil.training import recipe as find_recipe

Draws = int | Sequence[int | None] | None  # how many, which, or the standard shots
MOST_DRAWS = 1_000_000  # at a time; more is a slip


@final
@dataclass(frozen=True)
class HeldOut:
    """Base classes that play novel ones to backbones that a recipe trained without them; `weights` are checksums."""

    recipe: str
    weights: tuple[str, ...]
    rehearsals: tuple[Rehearsal, ...]


@final
@dataclass(frozen=True)
class Setting:
    """A protocol on its data set, seen by one backbone. `weights` are "imagenet" or a checksum."""

    protocol: Protocol
    dataset: Dataset
    backbone: Backbone
    weights: str
    trained: Trained | None = None  # the base session of the backbone, if one was trained
    views: int = 1  # over how many looks at an image its activations are averaged; see `masil.backbones.VIEWS`
    device: str = "auto"
    held_out: HeldOut | None = None  # where choices on a trained backbone are made; see `masil.benchmark.held_out`
    store: ActivationStore = field(default_factory=ActivationStore)

    @property
    def recipe(self) -> str | None:
        """The name of the base session's recipe."""
        return None if self.trained is None else self.trained.recipe.name

    @property
    def history(self) -> tuple[dict[str, Any], ...]:
        """The epochs of the base session."""
        return () if self.trained is None else self.trained.history

    @property
    def trained_for(self) -> str | None:
        """The method in whose own way the base session was trained, if in any's."""
        return None if self.trained is None else self.trained.recipe.method

    def activations(self, images: Images) -> Tensor:
        """Give the activations [n d] of images, extracted once and kept."""
        first, *others = find_views(self.views)
        mean = self.store.get(self.backbone, images, view=first, device=self.device)
        if others:
            for view in others:
                mean = mean + self.store.get(self.backbone, images, view=view, device=self.device)
            mean = mean / self.views
        return mean

    @cached_property
    def single(self) -> "Setting":
        """The setting with one view: what a method makes of images itself is of one, so its activations are, too."""
        return self if self.views == 1 else replace(self, views=1)

    def draws(self, asked: Draws) -> tuple[int | None, ...]:
        """Say which draws are played: 0 … n − 1, or those named; without any the standard shots, else draw 0.

        Standard shots that are named (None) where there are none are refused.
        """
        if isinstance(asked, int) and asked > MOST_DRAWS:
            raise InputError(f"{asked} draws were asked for; the most is {MOST_DRAWS}.")
        named = (None,) if asked is None else tuple(range(asked)) if isinstance(asked, int) else tuple(asked)
        if not named or any(draw is not None and not 0 <= draw < 2**63 for draw in named):
            raise InputError(
                f"Draws are counted from 0 to 2⁶³ − 1 and there must be one at least, but {asked} was asked for."
            )
        listed = self.dataset.shots is not None and self.protocol.order is None
        if asked is not None and None in named and not listed:
            why = "" if self.protocol.order is None else " in the order of classes that this protocol has"
            raise InputError(f"There are no standard shots of '{self.dataset.name}'{why}; name draws: 0, 1, …")
        return tuple(dict.fromkeys(0 if draw is None and not listed else draw for draw in named))

    @cached_property
    def checksum(self) -> str:
        """The sha256 of every image and label of the data set."""
        state = hashlib.sha256()
        for images in (self.dataset.train, self.dataset.test):
            state.update(images.fingerprint().encode())
            state.update(images.labels.numpy().tobytes())
        return state.hexdigest()

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the backbone's weights and configuration."""
        return self.backbone.fingerprint()


@final
@dataclass(frozen=True)
class Origin:
    """Where a backbone comes from: by name and weights, from a checkpoint, or trained by a recipe.

    `checkpoint` is the folder of a finished base session; with `recipe`, one is trained in `folder`, going on where an
    earlier one was stopped.
    """

    backbone: str | Backbone = "efficientnet_lite0"
    weights: str | Path = "imagenet"
    checkpoint: Path | str | None = None
    recipe: str | Recipe | None = None
    folder: Path | str | None = None


def prepare(
    protocol: str | Protocol = "characters",
    origin: Origin = Origin(),
    *,
    dataset: Dataset | None = None,
    data: Path | str | None = None,
    download: bool = False,
    views: int = 1,
    device: str = "auto",
) -> Setting:
    """Load a protocol's data set, unless it is given, and a backbone. `data` is the folder of data sets."""
    shape = protocol if isinstance(protocol, Protocol) else lookup("protocol", protocol, PROTOCOLS)
    find_views(views)  # now rather than after hours: there are sets of some numbers only
    plan = find_recipe(origin.recipe) if isinstance(origin.recipe, str) else origin.recipe
    if origin.checkpoint is not None and plan is not None:
        raise InputError("A recipe trains a base session and a checkpoint brings one; give one of the two.")
    if plan is not None and origin.folder is None:
        raise InputError(f"Recipe '{plan.name}' trains a base session, which needs a folder to be kept in; name one.")
    source: dict[str, Any] = {}
    if origin.checkpoint is not None:
        trained = load_trained(origin.checkpoint)
        _check_protocol(shape, trained, Path(origin.checkpoint))
        source = fields_from(trained)
    elif isinstance(origin.backbone, Backbone):
        source = {"backbone": origin.backbone, "weights": origin.backbone.fingerprint()}
    elif plan is None:
        net = create(origin.backbone, weights=origin.weights)
        source = {"backbone": net, "weights": "imagenet" if origin.weights == "imagenet" else net.fingerprint()}
    dataset = load(shape.dataset, data, download=download) if dataset is None else dataset
    if origin.checkpoint is not None and trained.names is not None:
        _refuse_other_classes(trained.names, next(sessions(shape, dataset)).names, Path(origin.checkpoint))
    if plan is not None and origin.folder is not None:
        source = fields_from(BaseSession(shape, with_room(plan, shape), Path(origin.folder)).train(dataset, device))
    return Setting(shape, dataset, views=views, device=device, **source)


def with_room(recipe: Recipe, protocol: Protocol) -> Recipe:
    """Give a recipe whose frame has room for every class of a protocol, where it does not say for how many."""
    loss, classes = make_loss(recipe.loss).to_json(), protocol.classes
    if loss["name"] != FrameLoss.name or loss["frame_shape"] is None or loss["reserve"] is not None:
        return recipe
    return replace(recipe, loss={**loss, "reserve": classes, "embedding": max(loss["embedding"], classes)})


def with_base(setting: Setting, trained: Trained) -> Setting:
    """Give the same setting with another base session."""
    return replace(setting, held_out=None, **fields_from(trained))


def fields_from(trained: Trained) -> dict[str, Any]:
    """Give the fields of a setting that a base session decides."""
    return {"backbone": trained.backbone, "weights": trained.backbone.fingerprint(), "trained": trained}


def _check_protocol(protocol: Protocol, trained: Trained, folder: Path) -> None:
    """Refuse a base session of another protocol: of other classes, or by a recipe that bears another's name."""
    recipe_for, classes = trained.recipe.name.partition("-")[0], len(trained.class_vectors)
    elsewhere = recipe_for in PROTOCOLS and PROTOCOLS[recipe_for].dataset != protocol.dataset
    if classes != protocol.base_classes or elsewhere:
        recipe = "" if protocol.dataset in USUAL else " --recipe RECIPE"
        command = f"train {protocol.name}{recipe}" if protocol.name in PROTOCOLS else "run PROTOCOL --recipe RECIPE"
        raise InputError(
            f"The checkpoint {folder} is of another protocol: its recipe is '{trained.recipe.name}' and it knows "
            f"{classes} base classes; '{protocol.name}' has {protocol.base_classes}. "
            f"Train one with: masil {command} --out FOLDER"
        )


def _refuse_other_classes(trained: Sequence[str], here: Sequence[str], folder: Path) -> None:
    """Refuse a base session of other classes: it may have seen the novel ones."""
    for label, (theirs, ours) in enumerate(zip(trained, here, strict=True)):
        if theirs != ours:
            raise InputError(
                f"The checkpoint {folder} was trained on other base classes: class {label} is '{theirs}' there and "
                f"'{ours}' here. Train one for this protocol and its order of classes."
            )
