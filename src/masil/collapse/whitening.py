"""g in closed form: variability collapse without training, by whitening with the base classes' own scatter."""

import math
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self, final

import torch
from torch import Tensor

from masil.collapse.embedding import Embedding
from masil.collapse.moments import ClassMoments, blocks, check_no_gaps, check_rows, count_classes
from masil.collapse.shrinkage import LARGEST, choose_shrinkage
from masil.errors import InputError

Shrinkage = float | Literal["auto"]

NOTHING = 1e-12  # of the largest entry: far below what float32 can add to it


@final
class Whitening(Embedding):
    """g(a) = (Σ_W + s m I)^{-½} (a^p − centre), Σ_W the within-class covariance of a^p and m its mean variance.

    In the new coordinates classes scatter alike in all directions, so that no direction of mere variability drowns
    what tells them apart: variability collapse (NC1) in closed form. The power p = ½ tames the long tail of rectified
    activations; the shrinkage s keeps directions that few samples tell about from being blown up; the centre, the mean
    of the base classes' means, takes away what all classes share and cosines would otherwise see first. One d × d
    matrix is all that is kept of the base session. `fit` makes one; the constructor alone gives the identity, to load
    a state into.
    """

    form: ClassVar[str] = "whitening"
    centre: Tensor  # [d]
    matrix: Tensor  # [d d], symmetric

    def __init__(self, features_in: int, power: float = 0.5, shrinkage: float = 0.0) -> None:
        super().__init__(features_in, features_in)
        check_power(power)
        self.power = power
        self.shrinkage = shrinkage
        self.register_buffer("centre", torch.zeros(features_in))
        self.register_buffer("matrix", torch.eye(features_in))

    @classmethod
    def fit(
        cls,
        activations: Tensor,
        labels: Tensor,
        power: float = 0.5,
        shrinkage: Shrinkage = "auto",
        shots: int = 5,
    ) -> Self:
        """Whiten activations [n d] labelled 0 … k − 1.

        The shrinkage s is a number of mean variances, or "auto": the one that best separates classes of `shots` images
        that had no part in the covariance.
        """
        check_rows(activations, labels)
        return cls.fit_stream([(activations, labels)], int(labels.max()) + 1, power, shrinkage, shots)

    @classmethod
    def fit_stream(
        cls,
        stream: Iterable[tuple[Tensor, Tensor]],
        classes: int,
        power: float = 0.5,
        shrinkage: Shrinkage = "auto",
        shots: int = 5,
    ) -> Self:
        """Whiten activations that come as blocks of rows [n d] and labels [n], each block looked at once."""
        check_power(power)
        halves = gather(stream, classes, power)
        whole = halves[0].joined(halves[1])
        if whole.freedom() < 1:
            raise InputError(
                f"Each of the {classes} classes has one image, so nothing is known of the scatter within a class; "
                f"whitening needs at least one class with two."
            )
        if isinstance(shrinkage, str) and shrinkage != "auto":
            raise InputError(f"The shrinkage is '{shrinkage}', but must be a number or 'auto'.")
        if shots < 1:
            raise InputError(f"A class of {shots} shots cannot be told from others; `shots` must be at least 1.")
        chosen = choose_shrinkage(halves, shots) if shrinkage == "auto" else shrinkage
        whitening = cls(whole.features, power, chosen)
        whitening.centre.copy_(whole.means().mean(0))
        root = inverse_root(whole.within(), chosen)
        # What rounding leaves of a zero may be too small for a normal float32, and processors multiply such slowly.
        whitening.matrix.copy_(torch.where(root.abs() < NOTHING * root.abs().max(), 0, root))
        return whitening

    def transform(self, activations: Tensor) -> Tensor:
        """Take the power, subtract the centre, multiply by the inverse root."""
        return (powered(activations, self.power) - self.centre) @ self.matrix

    def config(self) -> dict[str, Any]:
        """Give the power and the shrinkage that was used."""
        return {"features_in": self.features_in, "power": self.power, "shrinkage": self.shrinkage}


def gather(stream: Iterable[tuple[Tensor, Tensor]], classes: int, power: float) -> tuple[ClassMoments, ClassMoments]:
    """Sum up a^p of the classes with even and with odd numbers, so that either half can judge the other."""
    counts = torch.zeros(classes, dtype=torch.int64)
    halves: tuple[ClassMoments, ClassMoments] | None = None
    for activations, labels in stream:
        check_rows(activations, labels)
        d = activations.shape[1]
        if halves is None:
            halves = ClassMoments((classes + 1) // 2, d), ClassMoments(classes // 2, d)
        if d != halves[0].features:
            raise InputError(
                f"A block has {d} features but the ones before it had {halves[0].features}; "
                f"were they computed with the same backbone?"
            )
        counts += count_classes(labels, classes)
        for x, y in blocks(activations, labels):
            x = powered(x, power)
            for parity, half in enumerate(halves):
                half.add(x[y % 2 == parity], y[y % 2 == parity] // 2)
    if halves is None:
        raise InputError("There are no activations; was the set of images empty?")
    check_no_gaps(counts)
    return halves


def powered(activations: Tensor, power: float) -> Tensor:
    """Give a^p, with the gradient 0 instead of infinite where a = 0; a must be finite, and >= 0 unless p = 1."""
    lowest, highest = (float(edge) for edge in activations.detach().aminmax()) if activations.numel() else (0.0, 0.0)
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        raise InputError("Some activations are infinite or not a number; did training diverge?")
    if power == 1:
        return activations
    if lowest < 0:
        raise InputError(
            f"Some activations are negative (down to {lowest:.3g}), so their power {power} does not exist; "
            f"use a backbone that ends in a rectifier, or power=1."
        )
    positive = activations > 0
    return torch.where(positive, torch.where(positive, activations, 1).pow(power), 0)


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


def check_power(power: float) -> None:
    """Refuse a power outside (0, 1]."""
    if not 0 < power <= 1:
        raise InputError(f"The power is {power}, but must lie in (0, 1]; 1 leaves activations as they are.")
