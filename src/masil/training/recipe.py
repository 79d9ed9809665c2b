"""A recipe: every choice of a base session as plain values that JSON keeps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self, final

from masil.collapse import FRAMES
from masil.data import Augmentation
from masil.errors import InputError, lookup
from masil.training.plain import build, flat
from masil.training.schedule import Schedule

VERSION = 1  # of the JSON form
AVERAGES = {"none": "the last weights", "ema": "an exponential average", "last": "the mean over the last epochs"}
STARTS = {"random": "drawn from the seed", "means": "the class means of the activations before training"}


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
        _at_least(self, 0, "lr", "momentum", "weight_decay")


@final
@dataclass(frozen=True)
class MuonSettings:
    """Muon for the weights of convolutions; see `masil.training.muon`."""

    lr: float = 0.08  # the relative change of a weight per step, at the peak
    momentum: float = 0.9
    rounds: int = 3  # of Newton–Schulz

    def __post_init__(self) -> None:
        _at_least(self, 0, "lr", "momentum")
        _at_least(self, 1, "rounds")


@final
@dataclass(frozen=True)
class Mixing:
    """Which share of the batches is blended (mixup) or pasted into one another (cutmix), and how much."""

    mixup: float = 0.0  # probability
    mixup_alpha: float = 0.8
    cutmix: float = 0.0
    cutmix_alpha: float = 1.0

    def __post_init__(self) -> None:
        _at_least(self, 0, "mixup", "cutmix")
        if self.mixup + self.cutmix > 1:
            raise InputError(
                f"Mixup takes {self.mixup} and cutmix {self.cutmix} of the batches, together more than all."
            )


@final
@dataclass(frozen=True)
class Objective:
    """A weighted sum of losses; a weight of 0 leaves the term and its parameters out.

    `cosine`: cross-entropy of scaled cosines between activations and learnt class vectors. `dot`: dot-regression of
    embeddings on a fixed frame, through a learnt projection (Eq. loss). `contrast`: supervised contrast in the batch.
    `binary`: one sigmoid a class of the same cosines, as iCaRL trains. `prototypes`: directions that the cosine term
    keeps free for so many classes to come, as FACT does.
    """

    cosine: float = 1.0
    dot: float = 0.0
    contrast: float = 0.0
    binary: float = 0.0
    cosine_scale: float = 16.0
    margin: float = 0.0  # by which the cosine to the own class vector must win; below 0 it may lose
    smoothing: float = 0.0
    prototypes: int = 0
    prototype_weight: float = 0.01
    dot_scale: float = 10.0
    temperature: float = 0.1
    frame: str = "simplex"
    reserve: int | None = None  # classes the frame has room for, all that will ever come; None = the base classes
    embedding: int = 512  # features of the projection
    start: str = "random"  # or "means": the learnt class vectors begin at the class means of the first activations

    def __post_init__(self) -> None:
        lookup("frame", self.frame, FRAMES)
        lookup("start of the class vectors", self.start, STARTS)
        _at_least(self, 0, "cosine", "dot", "contrast", "binary", "smoothing", "prototypes", "prototype_weight")
        if self.cosine == self.dot == self.binary == 0:
            raise InputError(
                "A recipe needs a weight of `cosine`, `dot` or `binary` above 0; without them no class is learnt."
            )
        if self.prototypes and not self.cosine:
            raise InputError("Virtual prototypes belong to the cosine term; give `cosine` a weight above 0.")
        if min(self.cosine_scale, self.dot_scale, self.temperature) <= 0:
            raise InputError("The scales and the temperature of an objective must be positive.")


@final
@dataclass(frozen=True)
class Average:
    """Which weights are kept at the end."""

    kind: str = "none"
    decay: float = 0.999  # of "ema", per step
    epochs: int = 3  # of "last"

    def __post_init__(self) -> None:
        lookup("average", self.kind, AVERAGES)
        _at_least(self, 1, "epochs")
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
        _at_least(self, 0, "l2_sp")


@final
@dataclass(frozen=True)
class Watch:
    """What is measured while training, always on base training images."""

    holdout: int = 0  # images of each class that are kept from training, for the accuracy of every epoch
    nc_every: int = 1  # epochs between NC1–NC4; 0 = never
    nc_images: int = 10  # of each class

    def __post_init__(self) -> None:
        _at_least(self, 0, "holdout", "nc_every")
        _at_least(self, 2, "nc_images")


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
    fused: float = 0.0  # share of the images blended with one of another class, each pair of classes a virtual class
    objective: Objective = field(default_factory=Objective)
    average: Average = field(default_factory=Average)
    tuning: Tuning = field(default_factory=Tuning)
    watch: Watch = field(default_factory=Watch)
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
        for done, share in (("turned", self.rotated), ("fused", self.fused)):
            if not 0 <= share <= 1:
                raise InputError(f"A share {share} of the images is to be {done}, but a share lies in [0, 1].")
        if self.rotated and self.fused:
            raise InputError("Images are turned or fused to make virtual classes, not both; set one of the two to 0.")

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

    def in_the_way_of(self, method: str, **terms: float) -> Recipe:
        """Give this recipe with a method's own objective: of its losses only those in `terms` have a weight."""
        none = dict.fromkeys(("cosine", "dot", "contrast", "binary"), 0.0)
        objective = replace(self.objective, **(none | terms))  # type: ignore[arg-type]
        return replace(self, name=f"{self.name}+{method}", method=method, objective=objective)

    def to_json(self) -> dict[str, Any]:
        """Give plain values; `from_json` gives an equal recipe back, also after a trip through a JSON file."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Check and read what `to_json` gave, or a part of it: what is missing takes its default."""
        if not isinstance(value, dict):
            raise InputError(f"A recipe is a table of values, but this is {str(value)[:80]!r}.")
        values = dict(value)
        version = values.pop("version", VERSION)
        if version != VERSION:
            raise InputError(
                f"The recipe has version {version!r} but this masil reads version {VERSION}; update masil."
            )
        return build(cls, values, "recipe")

    def differences(self, other: Recipe) -> list[str]:
        """Say what differs, as "batch: 512 here, 128 there"."""
        ours, theirs = (dict(flat(recipe.to_json())) for recipe in (self, other))
        pairs = [(key, ours.get(key), theirs.get(key)) for key in {**ours, **theirs}]
        return [f"{key}: {here!r} here, {there!r} there" for key, here, there in pairs if here != there]


def _at_least(settings: Any, lowest: float, *names: str) -> None:
    for name in names:
        if not getattr(settings, name) >= lowest:
            raise InputError(f"`{name}` is {getattr(settings, name)}, but must be at least {lowest}.")
