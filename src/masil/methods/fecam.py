"""FeCAM: class means under a Mahalanobis distance, with a covariance that is shrunk and made a correlation.

There is no training, in the base session or after (Goswami et al. 2023).
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.errors import InputError
from masil.methods.method import Keeps, Method, Queries, Samples, Task, state


@final
@dataclass(kw_only=True)
class FeCAM(Method):
    """Predict argmin_y (x − μ_y)ᵀ R⁻¹ (x − μ_y), x the unit vector of a^λ, μ_y that of (mean a)^λ, R the correlations.

    `power` is Tukey's λ; `diagonal` and `off_diagonal` are the shrinkage weights γ₁ and γ₂. The original's 1 is for
    classes of hundreds of images. With few shots, what a mean has wrong is blown up in directions of little scatter;
    100 did best on base classes of CUB-200 that were given as few-shot ones, and damps the strongest directions only.
    """

    name = "fecam"
    title = "FeCAM"
    citation = (
        "Goswami et al., FeCAM: Exploiting the Heterogeneity of Class Distributions in Exemplar-Free Continual "
        "Learning, NeurIPS 2023"
    )

    differs = (
        "The original has a covariance per class, of which five shots say nothing; here all classes share the one "
        "within the base classes."
    )
    keeps = Keeps.MEANS | Keeps.COVARIANCE

    power: float = 0.5
    diagonal: float = 100.0
    off_diagonal: float = 100.0
    root: Tensor = state()  # [d d], R⁻¹ = root rootᵀ
    means: Tensor = state()  # [k d], unit length

    def __post_init__(self) -> None:
        if not 0 < self.power <= 1:
            raise InputError(f"The power is {self.power}, but must lie in (0, 1]; 1 leaves activations as they are.")

    def fit(self, base: Samples, task: Task) -> None:
        """Find the base means and the covariance around them."""
        rows, k = self._powered(base.activations), int(base.labels.max()) + 1
        if len(rows) <= k:
            raise InputError(f"Each of the {k} base classes has one image, so their scatter is unknown; give more.")
        scatter = rows - class_means(rows, base.labels)[base.labels]
        correlation = shrunk_correlation(scatter.T @ scatter / (len(rows) - k), self.diagonal, self.off_diagonal)
        # R = L Lᵀ, so R⁻¹ = L⁻ᵀ L⁻¹ and the distance is the Euclidean one between rows times L⁻ᵀ.
        identity = torch.eye(len(correlation), dtype=torch.float64)
        self.root = torch.linalg.solve_triangular(torch.linalg.cholesky(correlation), identity, upper=False).T.float()
        self.means = self._means(base)

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes."""
        self.means = torch.cat([self.means, self._means(shots, len(self.means))])

    def predict(self, queries: Queries) -> Tensor:
        """Give the class at the least distance."""
        x, mu = functional.normalize(self._powered(queries.activations)) @ self.root, self.means @ self.root
        return (mu.square().sum(1) - 2 * x @ mu.T).argmin(1)  # ‖x‖² is the same for all classes

    def _means(self, samples: Samples, known: int = 0) -> Tensor:
        means = class_means(samples.activations.clamp_min(0).float(), samples.labels, known)
        return functional.normalize(self._powered(means))

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
