"""FeCAM: class means under a Mahalanobis distance, with covariances that are shrunk and made correlations.

There is no training, in the base session or after (Goswami et al. 2023). The form for few shots, a covariance for each
class that new classes borrow from similar base classes, is that of Goswami et al. (2024); the plain form shares one.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.errors import InputError
from masil.methods.method import Keeps, LargestScore, Queries, Samples, Task, state
from masil.methods.tuning import Chooses
from masil.protocol import by_class

BLOCK = 1024  # queries compared at a time
SHARPNESS = 16.0  # τ, of the similarity to base classes


@dataclass(kw_only=True)
class _Mahalanobis(LargestScore):
    """Predict argmin_y (x − μ_y)ᵀ R_y⁻¹ (x − μ_y), x the unit vector of a^λ, R_y correlations; λ is `power`."""

    citation = (
        "Goswami et al., FeCAM: Exploiting the Heterogeneity of Class Distributions in Exemplar-Free Continual "
        "Learning, NeurIPS 2023"
    )
    keeps = Keeps.MEANS | Keeps.COVARIANCE
    power: float = 0.5
    means: Tensor = state()  # [k d], unit length

    def __post_init__(self) -> None:
        if not 0 < self.power <= 1:
            raise InputError(f"The power is {self.power}, but must lie in (0, 1]; 1 leaves activations as they are.")

    def powered(self, activations: Tensor) -> Tensor:
        """Give a^λ."""
        return activations.clamp_min(0).float().pow(self.power)

    def class_powers(self, samples: Samples, known: int = 0) -> Tensor:
        """Give the unit vectors of (mean a)^λ for the classes of a session."""
        means = class_means(samples.activations.clamp_min(0).float(), samples.labels, known)
        return functional.normalize(self.powered(means))


@final
@dataclass(kw_only=True)
class FeCAM(Chooses, _Mahalanobis):
    """Every class has a covariance of its own; a new class borrows mean and covariance from similar base classes.

    `keep` is what stays of a new class's own mean; `shrinkage` is the weight γ of both shrinkages. Both are chosen on
    base classes that play novel. The authors' γ = 1 is for classes of hundreds of images; with it, a new class's rough
    covariance loses to every exact one.
    """

    name = "fecam"
    title = "FeCAM"
    differs = (
        "The few-shot form of its authors (calibrated means and covariances), on square roots of activations; classes "
        "are compared after the mean of the base classes is taken off, because activations are non-negative."
    )
    tried = {"shrinkage": (100.0, 10.0, 1.0), "keep": (0.9, 0.75)}  # noqa: RUF012
    tried_in_fit = True

    keep: float | None = None
    shrinkage: float | None = None
    base: Tensor = state()  # [b d], the base means, unit length
    factors: list[Tensor] = state()  # of the base covariances
    roots: list[Tensor] = state()  # [d d] each, R_y⁻¹ = root rootᵀ

    def fit(self, base: Samples, task: Task) -> None:
        """Find the base means and the covariance around each."""
        self.choose(base, task)
        unit = functional.normalize(self.powered(base.activations))
        if int(torch.bincount(base.labels).min()) < 2:
            raise InputError("A base class has one image, so its scatter is unknown; give at least 2 of each.")
        self.base = self.means = self.class_powers(base)
        self.factors = scatter(unit, base.labels)
        self.roots = [self._root(factor.T @ factor) for factor in self.factors]

    def learn(self, shots: Samples) -> None:
        """Append calibrated means and covariances."""
        means = self.class_powers(shots, len(self.means))
        unit = functional.normalize(self.powered(shots.activations))
        shares = similarity(means, self.base)
        scattered = scatter(unit, shots.labels, len(self.means))
        covariances = (
            blended_covariance(share, self.factors) + factor.T @ factor
            for share, factor in zip(shares, scattered, strict=True)
        )
        self.roots = [*self.roots, *(self._root(covariance) for covariance in covariances)]
        self.means = torch.cat([self.means, calibrated_means(means, self.base, self.value("keep"))])

    def scores(self, queries: Queries) -> Tensor:
        """Give the distance to each class, negative."""
        classes = list(zip(self.means, self.roots, strict=True))
        blocks = torch.split(functional.normalize(self.powered(queries.activations)), BLOCK)
        distances = ([((rows - mean) @ root).square().sum(1) for mean, root in classes] for rows in blocks)
        return torch.cat([-torch.stack(parts, 1) for parts in distances])

    def _root(self, covariance: Tensor) -> Tensor:
        return inverse_root(shrunk_correlation(covariance, *[self.value("shrinkage")] * 2))


@final
@dataclass(kw_only=True)
class PlainFeCAM(_Mahalanobis):
    """All classes share the covariance within the base classes; means are as they are.

    With few shots, what a mean has wrong is blown up in directions of little scatter. Shrinkage weights of 100 did best
    on base classes of CUB-200 that were given as few-shot ones, and damp the strongest directions only.
    """

    name = "fecam-plain"
    title = "FeCAM (one covariance)"
    differs = "One covariance within the base classes instead of one for each class; nothing is calibrated."

    diagonal: float = 100.0
    off_diagonal: float = 100.0
    root: Tensor = state()  # [d d], R⁻¹ = root rootᵀ

    def fit(self, base: Samples, task: Task) -> None:
        """Find the base means and the covariance around them."""
        rows, k = self.powered(base.activations), base.classes
        if len(rows) <= k:
            raise InputError(f"Each of the {k} base classes has one image, so their scatter is unknown; give more.")
        offsets = rows - class_means(rows, base.labels)[base.labels]
        covariance = offsets.T @ offsets / (len(rows) - k)
        self.root = inverse_root(shrunk_correlation(covariance, self.diagonal, self.off_diagonal))
        self.means = self.class_powers(base)

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes."""
        self.means = torch.cat([self.means, self.class_powers(shots, len(self.means))])

    def scores(self, queries: Queries) -> Tensor:
        """Give the distance to each class, negative and less ‖x‖², which is the same for all classes."""
        x, mu = functional.normalize(self.powered(queries.activations)) @ self.root, self.means @ self.root
        return 2 * x @ mu.T - mu.square().sum(1)


def inverse_root(correlation: Tensor) -> Tensor:
    """Give a root of R⁻¹, float32: with R = L Lᵀ it is L⁻ᵀ, so distances are Euclidean ones of rows times it."""
    identity = torch.eye(len(correlation), dtype=correlation.dtype)
    root: Tensor = torch.linalg.solve_triangular(torch.linalg.cholesky(correlation), identity, upper=False).T
    return root.float()


def shrunk_correlation(covariance: Tensor, diagonal: float, off_diagonal: float) -> Tensor:
    """Give the correlations of Σ + γ₁ V₁ I + γ₂ V₂ (1 − I), V₁ and V₂ the means on and off the diagonal; float64."""
    covariance = covariance.double()
    d = len(covariance)
    identity = torch.eye(d, dtype=torch.float64)
    on = covariance.diagonal().mean()
    off = (covariance.sum() - covariance.diagonal().sum()) / max(1, d * (d - 1))
    shrunk = covariance + diagonal * on * identity + off_diagonal * off * (1 - identity)
    deviation = shrunk.diagonal().clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    return shrunk / deviation[:, None] / deviation


def similarity(means: Tensor, base: Tensor) -> Tensor:
    """Give softmax(τ cos) of new means [k d] to base means [b d], centred on the base classes, [k b].

    Five shots give a poor mean and no covariance. Base classes that resemble a new class have both, so it borrows from
    each to this degree.

    Activations are non-negative, so all cosines are high and close, and their softmax is flat; the means are therefore
    compared after the mean of the base classes is taken off.
    """
    centre = base.mean(0)
    cosines = functional.normalize(means - centre) @ functional.normalize(base - centre).T
    return torch.softmax(SHARPNESS * cosines, 1)


def calibrated_means(means: Tensor, base: Tensor, keep: float) -> Tensor:
    """Give `keep` of each new mean's direction and 1 − `keep` of that of the base means it resembles."""
    borrowed = functional.normalize(similarity(means, base) @ functional.normalize(base))
    return functional.normalize(keep * functional.normalize(means) + (1 - keep) * borrowed)


def scatter(rows: Tensor, labels: Tensor, known: int = 0) -> list[Tensor]:
    """Give a triangular factor F of each class's covariance: Fᵀ F is the unbiased estimate, 0 of a class of one row.

    It has no more rows than the class has images, and says nothing of them but their covariance.
    """
    means = class_means(rows, labels, known)
    members = [rows[positions] for positions in by_class(labels - known, len(means))]
    offsets = [(part - mean) / max(1, len(part) - 1) ** 0.5 for part, mean in zip(members, means, strict=True)]
    return [torch.linalg.qr(part, mode="r").R for part in offsets]


def blended_covariance(weights: Tensor, factors: list[Tensor]) -> Tensor:
    """Give Σ_b w_b F_bᵀ F_b, the covariance that a class borrows from base classes."""
    stacked = torch.cat([weight.sqrt() * factor for weight, factor in zip(weights, factors, strict=True)])
    return stacked.T @ stacked
