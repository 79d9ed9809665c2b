"""g in closed form: variability collapse without training, by whitening with the base classes' own scatter."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, final

import torch
from torch import Tensor

from masil.collapse.embedding import Embedding
from masil.collapse.moments import ClassMoments, blocks, check_no_gaps, check_rows, count_classes
from masil.collapse.shrinkage import LARGEST, choose_shrinkage
from masil.errors import InputError, StorageError

Shrinkage = float | Literal["auto"]

NOTHING = 1e-12  # of the largest entry: far below what float32 can add to it


@final
class Whitening(Embedding):
    """g(a) = (Σ_W + s m I)^{-½} (a − centre), Σ_W the within-class covariance and m its mean variance.

    In the new coordinates classes scatter alike in all directions, so that no direction of mere variability drowns
    what tells them apart: variability collapse (NC1) in closed form. The shrinkage s keeps directions that few samples
    tell about from being blown up; the centre, the mean of the base classes' means, takes away what all classes share
    and cosines would otherwise see first. One d × d matrix is all that is kept of the base session. `fit` makes one;
    the constructor alone gives the identity, to load a state into.
    """

    form: ClassVar[str] = "whitening"
    centre: Tensor  # [d]
    matrix: Tensor  # [d d], symmetric

    def __init__(self, features_in: int, shrinkage: float = 0.0) -> None:
        super().__init__(features_in, features_in)
        self.shrinkage = shrinkage
        self.register_buffer("centre", torch.zeros(features_in))
        self.register_buffer("matrix", torch.eye(features_in))

    @classmethod
    def fit(cls, activations: Tensor, labels: Tensor, shrinkage: Shrinkage = "auto", shots: int = 5) -> Self:
        """Whiten activations [n d] labelled 0 … k − 1.

        The shrinkage s is a number of mean variances, or "auto": the one that best separates classes of `shots` images
        that had no part in the covariance.
        """
        halves = gather(activations, labels)
        whole = halves[0].joined(halves[1])
        if whole.freedom() < 1:
            raise InputError(
                f"Each of the {len(whole.counts)} classes has one image, so nothing is known of the scatter within a "
                "class; whitening needs at least one class with two."
            )
        if isinstance(shrinkage, str) and shrinkage != "auto":
            raise InputError(f"The shrinkage is '{shrinkage}', but must be a number or 'auto'.")
        if shots < 1:
            raise InputError(f"A class of {shots} shots cannot be told from others; `shots` must be at least 1.")
        chosen = choose_shrinkage(halves, shots) if shrinkage == "auto" else shrinkage
        whitening = cls(whole.features, chosen)
        whitening.centre.copy_(whole.means().mean(0))
        root = inverse_root(whole.within(), chosen)
        # What rounding leaves of a zero may be too small for a normal float32, and processors multiply such slowly.
        whitening.matrix.copy_(torch.where(root.abs() < NOTHING * root.abs().max(), 0, root))
        return whitening

    def transform(self, activations: Tensor) -> Tensor:
        """Subtract the centre, multiply by the inverse root."""
        check_finite(activations)
        return (activations - self.centre) @ self.matrix

    def config(self) -> dict[str, Any]:
        """Give the shrinkage that was used."""
        return {"features_in": self.features_in, "shrinkage": self.shrinkage}

    @classmethod
    def from_state(cls, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> Self:
        """Make the map that gave this `config` and `state`; older ones name a power, which was always 1."""
        if config.get("power", 1) != 1:
            raise StorageError(f"The saved whitening takes a power of its own, {config['power']}; fit the model again.")
        return super().from_state({name: value for name, value in config.items() if name != "power"}, state)


def gather(activations: Tensor, labels: Tensor) -> tuple[ClassMoments, ClassMoments]:
    """Sum up the classes with even and with odd numbers, so that either half can judge the other."""
    check_rows(activations, labels)
    classes, d = int(labels.max()) + 1, activations.shape[1]
    check_no_gaps(count_classes(labels, classes))
    halves = ClassMoments((classes + 1) // 2, d), ClassMoments(classes // 2, d)
    for x, y in blocks(activations, labels):
        check_finite(x)
        for parity, half in enumerate(halves):
            half.add(x[y % 2 == parity], y[y % 2 == parity] // 2)
    return halves


def check_finite(activations: Tensor) -> None:
    """Refuse activations that are infinite or not a number."""
    if activations.numel() and not all(math.isfinite(edge) for edge in activations.detach().aminmax()):
        raise InputError("Some activations are infinite or not a number; did training diverge?")


def inverse_root(covariance: Tensor, shrinkage: float) -> Tensor:
    """Give (Σ + s m I)^{-½} up to a factor, m the mean of Σ's diagonal; float64 [d d], symmetric.

    Unit length takes the factor away, so Σ is first divided by m and the sum by 1 + s: any s >= 0 is then safe.
    """
    if not 0 <= shrinkage <= LARGEST:
        raise InputError(f"The shrinkage is {shrinkage}, but must lie in [0, {LARGEST:.0e}]; it is in mean variances.")
    mean = covariance.diagonal().mean()
    if not float(mean) > 0:
        raise InputError("The activations do not vary within any class; there is nothing to whiten.")
    values, vectors = torch.linalg.eigh(covariance / mean)
    values = (values.clamp_min(0) + shrinkage) / (1 + shrinkage)
    if float(values[0]) <= len(values) * torch.finfo(values.dtype).eps * float(values[-1]):
        raise InputError(
            f"The within-class covariance of {len(values)} features is singular; give more images, or a shrinkage > 0."
        )
    root: Tensor = (vectors * values.rsqrt()) @ vectors.T
    return root
