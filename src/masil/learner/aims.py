"""Two operating points: the strength of balance that is best for all classes together, and the fairest to new ones.

More of it finds more new classes and fewer base ones. Which strength does best by either measure is seen where base
classes play novel, never on test images.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.errors import InputError
from masil.protocol import harmonic_mean

AIMS = {"accuracy": "over all classes, what the field ranks by", "harmonic": "mean of base and novel accuracy"}
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)


@final
@dataclass(frozen=True, eq=False)
class Rehearsed:
    """Scores of images that nothing was learnt from, where base classes play novel; those that do not come first."""

    scores: Tensor  # [n k], not balanced
    offsets: Tensor  # [k], what a balance of strength 1 takes off
    labels: Tensor  # int64 [n]
    base: int  # classes


def operating_points(rehearsals: Iterable[Rehearsed]) -> dict[str, float]:
    """Give for each aim the strength that does best on average; 1 where none does anything."""
    totals = {aim: torch.zeros(len(STRENGTHS), dtype=torch.float64) for aim in AIMS}
    for play in rehearsals:
        for aim, total in totals.items():
            tried = (play.scores - strength * play.offsets for strength in STRENGTHS)
            total += torch.tensor([judged(scores, play.labels, play.base, aim) for scores in tried]).double()
    return {aim: STRENGTHS[int(total.argmax())] if bool(total.any()) else 1.0 for aim, total in totals.items()}


def judged(scores: Tensor, labels: Tensor, base: int, aim: str) -> float:
    """Give the accuracy, or the harmonic mean of base and novel accuracy."""
    right = (scores.argmax(1) == labels).double()
    if aim == "accuracy":
        return float(right.mean())
    return harmonic_mean(float(right[labels < base].mean()), float(right[labels >= base].mean()))


def refuse_aim_of_trained(aim: str | None) -> None:
    """Refuse to choose a balance on classes that the backbone was trained on."""
    if aim is not None:
        raise InputError(
            f"A balance for the aim '{aim}' is chosen on base classes that play novel, but this backbone was trained "
            "on them, so that they are not new to it; on CIFAR-100 such a choice cost five points. Give "
            "`balance` instead."
        )
