"""g in closed form: variability collapse without training, by whitening with the base classes' own scatter."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, final

import torch
from torch import Tensor

from masil.collapse.embedding import Embedding
from masil.collapse.moments import ClassMoments, blocks, check_no_gaps, check_rows, count_classes
from masil.collapse.shrinkage import LARGEST, choose_shrinkage, sampling_noise
from masil.errors import InputError, StorageError, is_number

Shrinkage = float | Literal["auto", "sampling"]

SAFE_SHRINKAGE = 1e-6  # from which on a covariance of a million features or fewer is no more singular than 1e12
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
    matrix: Tensor  # [d d], symmetric unless it was made for a moment's use

    def __init__(self, features_in: int, shrinkage: float = 0.0) -> None:
        super().__init__(features_in, features_in)
        self.shrinkage = shrinkage
        self.register_buffer("centre", torch.zeros(features_in))
        self.register_buffer("matrix", torch.eye(features_in))

    @classmethod
    def fit(cls, activations: Tensor, labels: Tensor, shrinkage: Shrinkage = "auto", shots: int = 5) -> Self:
        """Whiten activations [n d] labelled 0 … k − 1.

        The shrinkage s is a number of mean variances; "sampling": what so many images leave uncertain; or "auto": the
        one that best separates classes of `shots` images that had no part in the covariance.
        """
        check_shrinkage(shrinkage)
        halves = gather(activations, labels)
        whole = halves[0].joined(halves[1])
        if shots < 1:
            raise InputError(f"A class of {shots} shots cannot be told from others; `shots` must be at least 1.")
        check_scatter(whole)
        return cls.of_moments(whole, choose_shrinkage(halves, shots) if shrinkage == "auto" else shrinkage)

    @classmethod
    def of_moments(
        cls, moments: ClassMoments, shrinkage: float | Literal["sampling"], *, rotated: bool = False
    ) -> Self:
        """Whiten by the scatter of rows that have been summed up, each class with one row at least.

        With `rotated` the embeddings come in other coordinates, sooner: the matrix is triangular instead of symmetric.
        """
        check_scatter(moments)
        if shrinkage == "sampling":
            shrinkage = sampling_noise(moments.features, moments.freedom())
        whitening = cls(moments.features, shrinkage)
        whitening.centre.copy_(moments.means().mean(0))
        root = (triangular_root if rotated else inverse_root)(moments.within(), shrinkage)
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


def sum_parts(activations: Tensor, labels: Tensor, parts: Tensor) -> list[ClassMoments]:
    """Sum up the rows of part 0, 1, … of `parts` int64 [n] apart, each over all classes 0 … k − 1."""
    check_rows(activations, labels)
    count_classes(labels, classes := int(labels.max()) + 1)
    sums = [ClassMoments(classes, activations.shape[1]) for _ in range(int(parts.max()) + 1)]
    for part, total in enumerate(sums):
        inside = parts == part
        for x, y in blocks(activations[inside], labels[inside]):
            check_finite(x)
            total.add(x, y)
    return sums


def check_scatter(moments: ClassMoments) -> None:
    """Refuse classes of one image each."""
    if moments.freedom() < 1:
        raise InputError(
            f"Each of the {len(moments.counts)} classes has one image, so nothing is known of the scatter within a "
            "class; whitening needs at least one class with two."
        )


def check_finite(activations: Tensor) -> None:
    """Refuse activations that are infinite or not a number."""
    if activations.numel() and not all(math.isfinite(edge) for edge in activations.detach().aminmax()):
        raise InputError("Some activations are infinite or not a number; did training diverge?")


def check_shrinkage(shrinkage: Any) -> None:
    """Refuse what is neither a number of mean variances in range nor a rule for one."""
    if shrinkage not in ("auto", "sampling") and not (is_number(shrinkage) and 0 <= shrinkage <= LARGEST):
        raise InputError(
            f"The shrinkage is {shrinkage!r}, but must lie in [0, {LARGEST:.0e}], in mean variances, or be "
            "'sampling' or 'auto'."
        )


def inverse_root(covariance: Tensor, shrinkage: float) -> Tensor:
    """Give (Σ + s m I)^{-½} up to a factor, m the mean of Σ's diagonal; float64 [d d], symmetric.

    Unit length takes the factor away, so Σ is first divided by m and the sum by 1 + s: any s >= 0 is then safe.
    """
    check_shrinkage(shrinkage)
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


def triangular_root(covariance: Tensor, shrinkage: float) -> Tensor:
    """Give an upper triangular R with R Rᵀ = H Hᵀ, H what `inverse_root` gives: H up to a rotation, and much sooner."""
    mean = covariance.diagonal().mean()
    identity = torch.eye(len(covariance), dtype=covariance.dtype)
    factor, failed = torch.linalg.cholesky_ex((covariance / mean + shrinkage * identity) / (1 + shrinkage))
    if bool(failed) or not SAFE_SHRINKAGE <= shrinkage <= LARGEST or not float(mean) > 0:
        return inverse_root(covariance, shrinkage)
    root: Tensor = torch.linalg.solve_triangular(factor, identity, upper=False).T
    return root
