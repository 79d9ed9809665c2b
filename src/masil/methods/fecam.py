"""FeCAM: class means under a Mahalanobis distance, with a covariance that is shrunk and made a correlation.

Goswami et al. (2023) keep a covariance per class, of which five shots say nothing, nor do the thirty images of a
fine-grained base class. So here all classes share the covariance within the base classes: one d × d matrix, found once.
There is no training, in the base session or after.
"""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.errors import InputError
from masil.methods.method import Method
from masil.methods.taught import check_features, class_means, new_classes, taught


@final
class FeCAM(Method):
    """Predict argmin_y (x − μ_y)ᵀ R⁻¹ (x − μ_y), x the unit vector of a^λ, μ_y that of (mean a)^λ, R the correlations.

    `power` is Tukey's λ; `diagonal` and `off_diagonal` are the shrinkage weights γ₁ and γ₂. The original's 1 is for
    classes of hundreds of images. With few shots, what a mean has wrong is blown up in directions of little scatter;
    100 did best on base classes of CUB-200 that were given as few-shot ones, and damps the strongest directions only.
    """

    citation = (
        "Goswami et al., FeCAM: Exploiting the Heterogeneity of Class Distributions in Exemplar-Free Continual "
        "Learning, NeurIPS 2023"
    )

    def __init__(
        self,
        *,
        total: int | None = None,
        seed: int = 0,
        power: float = 0.5,
        diagonal: float = 100.0,
        off_diagonal: float = 100.0,
    ) -> None:
        super().__init__(total=total, seed=seed)
        if not 0 < power <= 1:
            raise InputError(f"The power is {power}, but must lie in (0, 1]; 1 leaves activations as they are.")
        self.power = power
        self.diagonal, self.off_diagonal = diagonal, off_diagonal
        self.root_: Tensor | None = None  # [d d], R⁻¹ = root rootᵀ
        self.means_: Tensor | None = None  # [k d], unit length

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Find the base means and the covariance around them."""
        k = new_classes(activations, labels)
        rows = self._powered(activations)
        if len(rows) <= k:
            raise InputError(f"Each of the {k} base classes has one image, so their scatter is unknown; give more.")
        scatter = rows - class_means(rows, labels)[labels]
        correlation = shrunk_correlation(scatter.T @ scatter / (len(rows) - k), self.diagonal, self.off_diagonal)
        # R = L Lᵀ, so R⁻¹ = L⁻ᵀ L⁻¹ and the distance is the Euclidean one between rows times L⁻ᵀ.
        identity = torch.eye(len(correlation), dtype=torch.float64)
        self.root_ = torch.linalg.solve_triangular(torch.linalg.cholesky(correlation), identity, upper=False).T.float()
        self.means_ = self._means(activations, labels)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Append the means of classes k, k + 1, …"""
        means = taught(self.means_)
        check_features(activations, means.shape[1])
        new_classes(activations, labels, len(means))
        self.means_ = torch.cat([means, self._means(activations, labels, len(means))])

    def predict(self, activations: Tensor) -> Tensor:
        """Give the class at the least distance."""
        means, root = taught(self.means_), taught(self.root_)
        check_features(activations, means.shape[1])
        x, mu = functional.normalize(self._powered(activations)) @ root, means @ root
        return (mu.square().sum(1) - 2 * x @ mu.T).argmin(1)  # ‖x‖² is the same for all classes

    def _means(self, activations: Tensor, labels: Tensor, known: int = 0) -> Tensor:
        return functional.normalize(self._powered(class_means(activations.clamp_min(0).float(), labels, known)))

    def _powered(self, activations: Tensor) -> Tensor:
        return activations.clamp_min(0).float().pow(self.power)


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
