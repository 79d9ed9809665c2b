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

from masil.collapse import class_means
from masil.errors import InputError
from masil.methods.fecam import scatter, similarity
from masil.methods.method import Keeps, LargestScore, Queries, Samples, Task, state
from masil.methods.tuning import Chooses
from masil.protocol import place_in_class

RIDGES: tuple[float, ...] = tuple(10.0 ** (step / 2) for step in range(-6, 7))  # in mean diagonals of the Gram matrix
SAFE_RIDGE = 1.0  # where classes are too small to hold out an image
HELD_OUT = 5  # every fifth image of a class judges the ridge
BLOCK = 4096  # rows widened at a time


@dataclass(kw_only=True)
class _RandomFeatures(LargestScore):
    """Score h = relu(â R) by hᵀ (G + ρ I)⁻¹ C, G the sum of the classes' second moments of h and C their means [m k].

    No image is kept: G and C are sums. The ridge ρ is chosen once, on base training images that are held out.
    """

    citation = (
        "McDonnell et al., RanPAC: Random Projections and Pre-trained Models for Continual Learning, NeurIPS 2023"
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
        R = torch.randn(activations.shape[1], self.features, generator=task.generator())
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

    def scores(self, queries: Queries) -> Tensor:
        """Give the regression's answers."""
        blocks = torch.split(queries.activations, BLOCK)
        return torch.cat([widened(rows, self.random) @ self.weights for rows in blocks])


@final
@dataclass(kw_only=True)
class RanPAC(Chooses, _RandomFeatures):
    """Features drawn from a calibrated Gaussian replace the shots of a new class, so that it has a width.

    Its mean borrows 1 − `keep` from similar base classes, its covariance half of theirs and half of its shots'.
    """

    name = "ranpac"
    title = "RanPAC"
    differs = (
        "The few-shot form of its authors (calibrated samples in place of shots), classes weighing alike, fewer random "
        "features than 10,000 for small machines; no adapters."
    )
    tried = {"keep": (0.9, 0.75, 0.5)}  # noqa: RUF012

    keep: float | None = None  # the authors' is .75 on CIFAR-100 and .9 on CUB-200; chosen on base classes if not given
    samples: int = 800  # of a new class
    base: Tensor = state()  # [b d], the base means
    factors: list[Tensor] = state()  # of the base covariances
    generator: torch.Generator = state()

    def fit(self, base: Samples, task: Task) -> None:
        """Regress on the base classes, and keep their means and covariances."""
        self.choose(base, task)
        super().fit(base, task)
        unit = functional.normalize(base.activations.float())
        self.base, self.factors = class_means(unit, base.labels), scatter(unit, base.labels)
        self.generator = task.generator()

    def learn(self, shots: Samples) -> None:
        """Draw features of the new classes, and add their moments."""
        known = len(self.means)
        unit = functional.normalize(shots.activations.float())
        means = class_means(unit, shots.labels, known)
        shares = similarity(means, self.base)
        centres = torch.lerp(shares @ self.base, means, self.value("keep"))
        rows = []
        for centre, row, own in zip(centres, shares, scatter(unit, shots.labels, known), strict=True):
            borrowed = [(share / 2).sqrt() * factor for share, factor in zip(row, self.factors, strict=True)]
            rows.append(gaussian(centre, [*borrowed, own / 2**0.5], self.samples, self.generator))
        labels = torch.arange(known, known + len(means)).repeat_interleave(self.samples)
        super().learn(Samples(torch.cat(rows), labels=labels))


@final
@dataclass(kw_only=True)
class PlainRanPAC(_RandomFeatures):
    """The shots themselves are added."""

    name = "ranpac-plain"
    title = "RanPAC (shots alone)"
    differs = (
        "Every class weighs the same, whatever its number of images; 2,000 random features, not 10,000, for the sake "
        "of small machines; the shared backbone, without the adapters of the original's first session."
    )


def gaussian(centre: Tensor, factors: list[Tensor], count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` rows of N(centre, Σ Fᵀ F), negative entries cut off: activations have none."""
    stacked = torch.cat(factors)
    noise = torch.randn(count, len(stacked), generator=generator) @ stacked
    return (centre + noise).clamp_min(0)


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
