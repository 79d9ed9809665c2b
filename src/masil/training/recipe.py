"""A recipe: every choice of a base session as plain values that JSON keeps, the learning rate's course among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self, final

from masil.data import Augmentation
from masil.errors import InputError, check_seed, lookup
from masil.storage import flat, from_json, to_json
from masil.training.loss import LOSSES, BaseLoss, CosineLoss, at_least, make_loss

# From 1 at t = 0 to 0 at t = 1.
SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda t: 1 - t,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
}


@final
@dataclass(frozen=True)
class Schedule:
    """Warm up linearly, then fall from 1 to `final` along `shape`, once or with warm restarts (SGDR).

    Of `cycles` cycles each is `growth` times as long as the one before; SGDR (Loshchilov & Hutter 2017) is the cosine
    with more than one.
    """

    shape: str = "linear"
    warmup: float = 0.05  # share of all steps
    final: float = 0.0  # fraction of the peak reached at the end of a cycle
    cycles: int = 1
    growth: float = 2.0

    def __post_init__(self) -> None:
        lookup("schedule", self.shape, SHAPES)
        if not 0 <= self.warmup < 1:
            raise InputError(f"The warm-up takes a share {self.warmup} of all steps, but must lie in [0, 1).")
        if not 0 <= self.final <= 1:
            raise InputError(f"The learning rate ends at {self.final} of its peak, but must lie in [0, 1].")
        if self.cycles < 1 or self.growth <= 0:
            raise InputError(f"A schedule needs cycles >= 1 and growth > 0, not {self.cycles} and {self.growth}.")

    def factor(self, step: int, steps: int) -> float:
        """Give the fraction of the peak for step 0 … steps − 1; the middle of the step is what counts."""
        progress = (step + 0.5) / steps
        if progress < self.warmup:
            return progress / self.warmup
        height = SHAPES[self.shape](self._within_cycle((progress - self.warmup) / (1 - self.warmup)))
        return self.final + (1 - self.final) * height

    def _within_cycle(self, progress: float) -> float:
        """Map progress over all cycles to progress in the current one."""
        lengths = [self.growth**i for i in range(self.cycles)]
        position = progress * sum(lengths)
        for length in lengths[:-1]:
            if position < length:
                return position / length
            position -= length
        return min(1.0, position / lengths[-1])


VERSION = 2  # of the JSON form; 1 had a sum of losses, of which one had a weight
AVERAGES = {"none": "the last weights", "ema": "an exponential average", "last": "the mean over the last epochs"}


@final
@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with momentum, for every parameter that Muon does not take."""

    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    nesterov: bool = True
    decay_vectors: bool = False  # decay biases and batch norms as well

    def __post_init__(self) -> None:
        at_least(self, 0, "lr", "momentum", "weight_decay")


@final
@dataclass(frozen=True)
class MuonSettings:
    """Muon for the weights of convolutions; see `masil.training.optimiser`."""

    lr: float = 0.08  # the relative change of a weight per step, at the peak
    momentum: float = 0.9
    rounds: int = 3  # of Newton–Schulz

    def __post_init__(self) -> None:
        at_least(self, 0, "lr", "momentum")
        at_least(self, 1, "rounds")


@final
@dataclass(frozen=True)
class Mixing:
    """Which share of the batches is blended (mixup) or pasted into one another (cutmix), and how much."""

    mixup: float = 0.0  # probability
    mixup_alpha: float = 0.8
    cutmix: float = 0.0
    cutmix_alpha: float = 1.0

    def __post_init__(self) -> None:
        at_least(self, 0, "mixup", "cutmix")
        if self.mixup + self.cutmix > 1:
            raise InputError(
                f"Mixup takes {self.mixup} and cutmix {self.cutmix} of the batches, together more than all."
            )


@final
@dataclass(frozen=True)
class Average:
    """Which weights are kept at the end."""

    kind: str = "none"
    decay: float = 0.999  # of "ema", per step
    epochs: int = 3  # of "last"

    def __post_init__(self) -> None:
        lookup("average", self.kind, AVERAGES)
        at_least(self, 1, "epochs")
        if not 0 <= self.decay < 1:
            raise InputError(f"The decay of an average is {self.decay}, but must lie in [0, 1).")


@final
@dataclass(frozen=True)
class Tuning:
    """How gently a pretrained backbone is treated. Modules have its own names: "layer1", "blocks.3", "" for all."""

    frozen: tuple[str, ...] = ()
    freeze_batch_norm: bool = False
    rates: dict[str, float] = field(default_factory=dict)  # module -> factor on the learning rate
    l2_sp: float = 0.0  # pull towards the initial weights: ½ · l2_sp · ‖w − w₀‖² (Li et al. 2018)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frozen", tuple(self.frozen))
        at_least(self, 0, "l2_sp")


@final
@dataclass(frozen=True)
class Monitoring:
    """What is measured while training, always on base training images."""

    holdout: int = 0  # images of each class that are kept from training, for the accuracy of every epoch
    nc_every: int = 1  # epochs between NC1–NC4; 0 = never
    nc_images: int = 10  # of each class

    def __post_init__(self) -> None:
        at_least(self, 0, "holdout", "nc_every")
        at_least(self, 2, "nc_images")


@final
@dataclass(frozen=True)
class Recipe:
    """A base session. `stages` are (epochs, pixels a side) in turn: small images first, because they are cheap."""

    name: str
    stages: tuple[tuple[int, int], ...]
    backbone: str = "resnet18_cifar"
    width: float = 1.0
    weights: str | None = None  # what `masil.backbones.create` takes: "imagenet", a path, or None for a random start
    framing: tuple[int, int] | None = None  # resize and crop in px; None = the backbone's own
    batch: int = 512
    sgd: Sgd = field(default_factory=Sgd)
    muon: MuonSettings | None = None
    schedule: Schedule = field(default_factory=Schedule)
    augmentation: Augmentation = field(default_factory=Augmentation)
    mixing: Mixing = field(default_factory=Mixing)
    rotated: float = 0.0  # share of the images turned by 90, 180 or 270°, each turn of a class a virtual class
    loss: dict[str, Any] = field(default_factory=dict)  # its name and settings, see `BaseLoss.to_json`
    average: Average = field(default_factory=Average)
    tuning: Tuning = field(default_factory=Tuning)
    watch: Monitoring = field(default_factory=Monitoring)
    compile: bool = True  # where the machine gains by it and the stage is long enough
    seed: int = 0
    method: str | None = None  # whose way of training this is; None = it is nobody's in particular

    def __post_init__(self) -> None:
        stages = tuple((int(epochs), int(px)) for epochs, px in self.stages)
        object.__setattr__(self, "stages", stages)
        object.__setattr__(self, "framing", None if self.framing is None else tuple(self.framing))
        if not stages or any(epochs < 1 or px < 1 for epochs, px in stages):
            raise InputError(f"A recipe needs stages of at least one epoch and one pixel, not {list(stages)}.")
        if self.batch < 2:
            raise InputError(f"A batch of {self.batch} is too small; batch norm needs at least 2 images.")
        check_seed(self.seed)
        if not 0 <= self.rotated <= 1:
            raise InputError(f"A share {self.rotated} of the images is to be turned, but a share lies in [0, 1].")
        if self.loss.get("name", CosineLoss.name) in LOSSES:  # one that is not known here stays as it is
            loss = make_loss(self.loss)
            object.__setattr__(self, "loss", loss.to_json())
            if self.rotated and loss.virtual_classes(2) != 2:
                raise InputError(f"The loss '{loss.name}' makes virtual classes of its own; set `rotated` to 0.")

    @property
    def epochs(self) -> int:
        """Epochs of all stages."""
        return sum(epochs for epochs, _ in self.stages)

    def pixels(self, epoch: int) -> int:
        """Give the image size in epoch 0, 1, …"""
        for epochs, px in self.stages:
            if epoch < epochs:
                return px
            epoch -= epochs
        return self.stages[-1][1]

    def trained_by(self, method: str, loss: BaseLoss) -> Recipe:
        """Give this recipe with a loss of its own; its name says whose it is, one method's or that of several."""
        return replace(self, name=f"{self.name}+{method}", method=method, rotated=0.0, loss=loss.to_json())

    def to_json(self) -> dict[str, Any]:
        """Give plain values; `from_json` gives an equal recipe back, also after a trip through a JSON file."""
        return to_json(self, VERSION)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Check and read what `to_json` gave, or a part of it: what is missing takes its default."""
        if isinstance(value, dict) and value.get("version") == 1:
            value = dict(value) | {"version": VERSION}
            value["loss"] = _loss_of_version_1(value.pop("objective", {}), value.pop("fused", 0.0))
        return from_json(cls, value, "recipe", VERSION)

    def differences(self, other: Recipe) -> list[str]:
        """Say what differs, as "batch: 512 here, 128 there"."""
        ours, theirs = (dict(flat(recipe.to_json())) for recipe in (self, other))
        pairs = [(key, ours.get(key), theirs.get(key)) for key in {**ours, **theirs}]
        return [f"{key}: {here!r} here, {there!r} there" for key, here, there in pairs if here != there]


def _loss_of_version_1(objective: dict[str, Any], fused: float) -> dict[str, Any]:
    """Give the one loss that has a weight in a recipe of version 1."""

    def taken(name: str, **fields: str) -> dict[str, Any]:
        settings = {new: objective[old] for new, old in fields.items() if old in objective}
        return {"name": name, **settings}

    weighted = {term for term in ("cosine", "dot", "binary") if objective.get(term, float(term == "cosine"))}
    if len(weighted) > 1:
        raise InputError(f"A recipe of version 1 adds up several losses ({', '.join(sorted(weighted))}); name one.")
    if weighted == {"dot"}:
        return taken("frame", frame_shape="frame", scale="dot_scale", reserve="reserve", embedding="embedding")
    if weighted == {"binary"}:
        return taken("icarl", scale="cosine_scale")
    if objective.get("prototypes"):
        return taken("fact", scale="cosine_scale", prototypes="prototypes", weight="prototype_weight")
    if fused:
        return {**taken("alice", scale="cosine_scale", margin="margin"), "fused": fused}
    names = ("margin", "smoothing", "start", "contrast", "temperature")
    return taken("cosine", scale="cosine_scale", **{name: name for name in names})
