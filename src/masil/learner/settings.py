"""The settings of a learner as checked values, and the ones that contradict each other or have no effect."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, final

from masil.collapse import Embedding, check_shrinkage
from masil.errors import InputError, NoEffectWarning, check_seed, is_number, lookup

if TYPE_CHECKING:
    from masil.learner.masil import Masil

Alpha = float | Literal["auto"]
FORMS = ("whitening", "linear")
READINGS = ("posterior", "literal")
SOLVERS = ("exact", "sgdr")
CALIBRATIONS = ("concepts", "teen", "both")
AIMS = {"accuracy": "over all classes, what the field ranks by", "harmonic": "mean of base and novel accuracy"}
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # of balance, among which an aim chooses
# The strengths for a backbone that was trained on the base images. It knows the classes that would play novel, so these
# were found with backbones that were trained without some classes (`docs/defaults.md`).
TRAINED_BALANCE = {"accuracy": 0.5, "harmonic": 1.0}


@final
@dataclass(frozen=True, eq=False)
class Settings:
    """What the core depends on besides its data; each is described at `Masil`."""

    concepts: int = 64
    embedding: str | Embedding = "whitening"
    power: float = 0.5
    shrinkage: float | str = "sampling"
    alpha: Alpha = "auto"
    reading: str = "posterior"
    solver: str = "exact"
    calibration: str | None = "concepts"
    teen: float = 0.3
    balance: float | None = None
    aim: str | None = None
    bias: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("power", "teen", "bias", *["balance"] * (self.balance is not None)):
            if not is_number(value := getattr(self, name)):
                raise InputError(f"`{name}` is {value!r}; it must be a number.")
        check_shrinkage(self.shrinkage)
        lookup("reading of the fine-tuning loss", self.reading, dict.fromkeys(READINGS))
        lookup("fine-tuning solver", self.solver, dict.fromkeys(SOLVERS))
        if self.calibration is not None:
            lookup("calibration", self.calibration, dict.fromkeys(CALIBRATIONS))
        if not 0 <= self.teen <= 1:
            raise InputError(f"TEEN's weight is {self.teen}, but must lie between 0 and 1.")
        if not is_number(self.concepts, Integral) or self.concepts < 1:
            raise InputError(f"`concepts` is {self.concepts!r}; it must be a whole number >= 1.")
        if not isinstance(self.embedding, Embedding):
            lookup("form of embedding", self.embedding, dict.fromkeys(FORMS))
        if self.balance is not None and not 0 <= self.balance <= STRENGTHS[-1]:
            raise InputError(f"The balance is {self.balance}, but must lie between 0 and {STRENGTHS[-1]}.")
        if self.aim is not None:
            lookup("aim", self.aim, AIMS)
            if self.balance is not None:
                raise InputError(
                    f"`aim` is {self.aim!r} and `balance` is {self.balance}, but an aim chooses the balance; leave one "
                    "of them out."
                )
        if not 0 < self.power <= 1:
            raise InputError(f"The power is {self.power}, but must lie in (0, 1]; 1 leaves activations as they are.")
        if self.alpha != "auto" and (not is_number(self.alpha) or not self.alpha >= 0):
            raise InputError(f"α is {self.alpha!r}; it must be a number >= 0 (inf: concepts alone), or 'auto'.")

    @property
    def with_concepts(self) -> bool:
        """Whether induced vectors take part."""
        return self.calibration in ("concepts", "both")

    @property
    def with_teen(self) -> bool:
        """Whether novel vectors are drawn to base vectors."""
        return self.calibration in ("teen", "both")

    @property
    def measures_prior(self) -> bool:
        """Whether the base session has to measure how much to trust concepts."""
        return self.alpha == "auto" and self.with_concepts

    def strength(self, points: Mapping[str, float] | None) -> float:
        """Give the strength of balance: the one that was given, or that of these operating points which is aimed at."""
        if self.aim is None:
            return 1.0 if self.balance is None else self.balance
        if points is None:
            raise InputError(
                f"`aim` is {self.aim!r}, but there was none when the base session was learnt, so that no balance was "
                "chosen; `fit` again, or give `balance` instead."
            )
        return points[self.aim]


def read_settings(model: Masil, stacklevel: int = 2) -> Settings:
    """Check the parameters of a learner and give those of the core; warn of those that have no effect."""
    if not is_number(model.crops, Integral) or model.crops < 0:
        raise InputError(f"`crops` is {model.crops!r}; it must be a whole number >= 0.")
    if model.crops and model.backbone is None:
        raise InputError(
            f"`crops` is {model.crops}, but without a backbone there are activations and no images to cut; set it to 0."
        )
    if not isinstance(model.backbone, str) and model.weights not in ("imagenet", None):
        raise InputError(
            f"`weights` are {str(model.weights)!r}, but only a backbone that is given by its name is filled with them; "
            "leave them out."
        )
    settings = core_settings(model)
    changed = model.changed()
    for names, reason in _without_effect(model, settings):
        for name in names:
            if name in changed:
                text = f"`{name}={getattr(model, name)!r}` has no effect: {reason}."
                warnings.warn(text, NoEffectWarning, stacklevel=stacklevel + 1)
    return settings


def core_settings(model: Masil) -> Settings:
    """Give the parameters of a learner that the core depends on."""
    return Settings(**{field.name: getattr(model, field.name) for field in fields(Settings)})


def for_trained(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Give a learner's parameters with the balance for a backbone that was trained on the base images, by their aim."""
    if parameters.get("balance") is not None:
        return dict(parameters)
    aim = parameters.get("aim") or "accuracy"
    lookup("aim", aim, AIMS)
    return {**parameters, "balance": TRAINED_BALANCE[aim], "aim": None}


def _without_effect(model: Masil, settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield parameters that nothing depends on, and why."""
    if not settings.with_concepts:
        yield ("alpha", "reading", "solver"), f"with calibration={settings.calibration!r} concepts take no part"
    elif settings.alpha != "auto" and math.isinf(settings.alpha):
        yield ("reading", "solver"), "with alpha=inf class vectors are made of concepts alone"
    if not settings.with_teen:
        yield ("teen",), f"with calibration={settings.calibration!r} novel vectors are not drawn to base ones"
    if settings.embedding != "whitening":
        yield ("shrinkage",), "it is whitening's, and `embedding` is another"
    if not model.crops:
        yield ("side",), "it is that of crops, and `crops` is 0"
    if model.backbone is None and model.device != "cpu":
        yield ("device",), "there is no backbone to run on it, and sessions are computed on the processor"
