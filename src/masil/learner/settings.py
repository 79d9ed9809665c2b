"""Settings that contradict each other are refused; those that have no effect beside the others are warned of."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from masil.errors import InputError, NoEffectWarning
from masil.learner.session import Rules

if TYPE_CHECKING:
    from masil.learner.masil import Masil


def read_rules(model: Masil, stacklevel: int = 2) -> Rules:
    """Check the parameters of a learner, and give those that say how a class vector is made."""
    for name, least in (("concepts", 1), ("crops", 0)):
        if not isinstance(value := getattr(model, name), int | np.integer) or value < least:
            raise InputError(f"`{name}` is {value!r}; it must be a whole number >= {least}.")
    if not 0 <= model.balance <= 1:
        raise InputError(f"The balance is {model.balance}, but must lie between 0 and 1.")
    if not 0 < model.power <= 1:
        raise InputError(f"The power is {model.power}, but must lie in (0, 1]; 1 leaves activations as they are.")
    if model.crops and model.backbone is None:
        raise InputError(
            f"`crops` is {model.crops}, but without a backbone there are activations and no images to cut; set it to 0."
        )
    if not isinstance(model.backbone, str) and model.weights not in ("imagenet", None):
        raise InputError(
            f"`weights` are {str(model.weights)!r}, but only a backbone that is given by its name is filled with them; "
            "leave them out."
        )
    rules = Rules(model.alpha, model.reading, model.solver, model.calibration, model.teen)
    changed = model.changed()
    for names, reason in _idle(model, rules):
        for name in names:
            if name in changed:
                text = f"`{name}={getattr(model, name)!r}` has no effect: {reason}."
                warnings.warn(text, NoEffectWarning, stacklevel=stacklevel + 1)
    return rules


def _idle(model: Masil, rules: Rules) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield parameters that nothing depends on, and why."""
    if not rules.with_concepts:
        yield ("alpha", "reading", "solver"), f"with calibration={rules.calibration!r} concepts take no part"
    elif rules.alpha != "auto" and math.isinf(rules.alpha):
        yield ("reading", "solver"), "with alpha=inf class vectors are made of concepts alone"
    if rules.calibration not in ("teen", "both"):
        yield ("teen",), f"with calibration={rules.calibration!r} novel vectors are not drawn to base ones"
    if model.embedding != "whitening":
        yield ("shrinkage",), "it is whitening's, and `embedding` is another"
    if not model.crops:
        yield ("side",), "it is that of crops, and `crops` is 0"
    if model.backbone is None and model.device != "cpu":
        yield ("device",), "there is no backbone to run on it, and sessions are computed on the processor"
