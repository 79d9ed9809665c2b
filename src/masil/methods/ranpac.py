"""RanPAC: a random layer widens the activations, ridge regression on top of it is kept exact as classes come.

McDonnell et al. (2023) sum over images, so that a class of 500 outweighs one of 5 a hundredfold; their streams are of
many-shot classes, ours are not. Here every class weighs the same: its share of the Gram matrix and of the targets is a
mean over its images, and activations have unit length.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.errors import InputError
from masil.methods.method import Keeps, Method, Queries, Samples, Task, state

RIDGES: tuple[float, ...] = tuple(10.0 ** (step / 2) for step in range(-6, 7))  # in mean diagonals of the Gram matrix
SAFE_RIDGE = 1.0  # where classes are too small to hold out an image
HELD_OUT = 5  # every fifth image of a class judges the ridge
BLOCK = 4096  # rows widened at a time


@final
@dataclass(kw_only=True)
class RanPAC(Method):
    """Score h = relu(â R) by hᵀ (G + ρ I)⁻¹ C, G the sum of the classes' second moments of h and C their means [m k].

    No image is kept: G and C are sums. The ridge ρ is chosen once, on base training images that are held out.
    """

    name = "ranpac"
    title = "RanPAC"
    citation = (
        "McDonnell et al., RanPAC: Random Projections and Pre-trained Models for Continual Learning, NeurIPS 2023"
    )

    differs = (
        "Every class weighs the same, whatever its number of images; 2,000 random features, not 10,000, for the sake "
        "of small machines; the shared backbone, without the adapters of the original's first session."
    )
    keeps = Keeps.MEANS | Keeps.COVARIANCE

    features: int = 2000
    random: Tensor = state()  # R [d m]
    gram: Tensor = state()  # G [m m], float64
    means: Tensor = state()  # Cᵀ [k m]
    ridge: float = state()
    weights: Tensor = state()  # [m k]

    def __post_init__(self) -> None:
        if self.features < 1:
            raise InputError(f"The random layer has {self.features} features, but needs at least 1.")

    def fit(self, base: Samples, task: Task) -> None:
        """Draw the random layer, choose the ridge, and regress on the base classes."""
        activations, labels = base.activations, base.labels
        generator = torch.Generator().manual_seed(task.seed)
        R = torch.randn(activations.shape[1], self.features, generator=generator)
        judges = place_in_class(labels) % HELD_OUT == HELD_OUT - 1
        self.ridge = SAFE_RIDGE
        if bool(judges.any()):
            G, means = moments(activations[~judges], labels[~judges], R)
            self.ridge = best_ridge(G, means, widened(activations[judges], R), labels[judges])
        self.random = R
        self.gram, self.means = moments(activations, labels, R)
        self.weights = ridge_weights(self.gram, self.means, self.ridge)

    def learn(self, shots: Samples) -> None:
        """Add the new classes' moments and solve again."""
        added, added_means = moments(shots.activations, shots.labels, self.random, len(self.means))
        self.gram, self.means = self.gram + added, torch.cat([self.means, added_means])
        self.weights = ridge_weights(self.gram, self.means, self.ridge)

    def predict(self, queries: Queries) -> Tensor:
        """Give the class with the largest score."""
        blocks = torch.split(queries.activations, BLOCK)
        return torch.cat([(widened(rows, self.random) @ self.weights).argmax(1) for rows in blocks])


def widened(activations: Tensor, R: Tensor) -> Tensor:
    """Give h = relu(â R), â the activations at unit length."""
    return (functional.normalize(activations.float()) @ R).relu()


def moments(activations: Tensor, labels: Tensor, R: Tensor, known: int = 0) -> tuple[Tensor, Tensor]:
    """Give the sum over classes of the mean of h hᵀ, float64 [m m], and the class means of h [k m]."""
    counts = torch.bincount(labels - known)
    gram = torch.zeros(R.shape[1], R.shape[1], dtype=torch.float64)
    sums = torch.zeros(len(counts), R.shape[1])
    for rows, classes in zip(torch.split(activations, BLOCK), torch.split(labels - known, BLOCK), strict=True):
        h = widened(rows, R)
        gram += (h / counts[classes, None]).T @ h
        sums.index_add_(0, classes, h)
    return gram, sums / counts[:, None]


def ridge_weights(gram: Tensor, means: Tensor, ridge: float) -> Tensor:
    """Solve (G + ρ I) W = C, ρ being `ridge` mean diagonals of G; float32 [m k]."""
    regular = gram.clone()
    regular.diagonal().add_(ridge * gram.diagonal().mean().clamp_min(1e-12))
    factor = torch.linalg.cholesky(regular)
    return torch.cholesky_solve(means.double().T, factor).float()


def best_ridge(gram: Tensor, means: Tensor, held: Tensor, labels: Tensor) -> float:
    """Give the ridge whose scores of held-out rows are nearest to their one-hot labels."""
    targets = functional.one_hot(labels, len(means)).float()
    errors = [float((held @ ridge_weights(gram, means, ridge) - targets).square().mean()) for ridge in RIDGES]
    return RIDGES[min(range(len(RIDGES)), key=errors.__getitem__)]


def place_in_class(labels: Tensor) -> Tensor:
    """Give each row's place among the rows of its class: 0, 1, …"""
    order = labels.argsort(stable=True)
    counts = torch.bincount(labels)
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    places = torch.empty_like(labels)
    places[order] = torch.arange(len(labels)) - starts
    return places
