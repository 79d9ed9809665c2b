"""What a concept bank remembers beside its concepts: how it was fitted, and which crops show each concept."""

from dataclasses import dataclass
from typing import final

from torch import Tensor


@final
@dataclass(frozen=True)
class BankRecord:
    """How a bank came about."""

    rows: int  # activations it was fitted on
    seed: int
    iterations: int
    converged: bool
    objective: float  # ½‖A − PQ‖²_F at the end of the fit
    backbone: str | None = None  # the fingerprint of the backbone, where the bank was fitted on images
    crops: int | None = None  # of each image
    side: int | None = None  # of a crop, in input pixels


@final
@dataclass(frozen=True)
class Strongest:
    """The rows that show each concept most, from most to least."""

    rows: Tensor  # int64 [v m]
    coefficients: Tensor  # [v m]


@final
@dataclass(frozen=True)
class Examples:
    """The crops that show each concept most, from most to least."""

    images: Tensor  # int64 [v m], positions in the images the bank was fitted on
    boxes: Tensor  # int64 [v m 4]: top, left, bottom, right, in the pixels of the framed image
    coefficients: Tensor  # [v m]
