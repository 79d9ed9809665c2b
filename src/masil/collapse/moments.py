"""Sums over classes that stream: counts, class sums and one second moment, in float64 on the CPU."""

from collections.abc import Iterator

import torch
from torch import Tensor

from masil.errors import InputError

BLOCK = 4096  # rows at a time, so that float64 copies stay small


def blocks(activations: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows and labels a block at a time, as float64 and int64 on the CPU; a memory map is never read whole."""
    for x, y in zip(torch.split(activations, BLOCK), torch.split(labels, BLOCK), strict=True):
        yield x.detach().to("cpu", torch.float64), y.to("cpu", torch.int64)


def check_rows(activations: Tensor, labels: Tensor) -> None:
    """Refuse activations that are not [n d], or labels that are not [n], or none of either."""
    if activations.ndim != 2 or labels.ndim != 1:
        raise InputError(
            f"Activations must be [n d] and labels [n], but have the shapes "
            f"{list(activations.shape)} and {list(labels.shape)}."
        )
    if len(activations) != len(labels):
        raise InputError(f"There are {len(activations)} rows of activations but {len(labels)} labels.")
    if len(labels) == 0:
        raise InputError("There are no activations; was the set of images empty?")


def count_classes(labels: Tensor, k: int) -> Tensor:
    """Count the images of each of k classes, int64 [k], refusing labels outside 0 … k − 1."""
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= k:
        raise InputError(f"Labels run from {lowest} to {highest}, but must number {k} classes from 0 to {k - 1}.")
    return torch.bincount(labels.to("cpu", torch.int64), minlength=k)


def check_no_gaps(counts: Tensor) -> None:
    """Refuse classes without an image."""
    if bool((counts == 0).any()):
        missing = int((counts == 0).nonzero()[0])
        raise InputError(
            f"Labels must number the classes from 0 to {len(counts) - 1} without gaps, but class {missing} has no "
            f"image; number the classes that are there anew."
        )


def class_means(rows: Tensor, labels: Tensor, known: int = 0) -> Tensor:
    """Give the mean row of each of the classes `known`, `known` + 1, …, of which every one has a row, [k d]."""
    counts = torch.bincount(labels - known)
    sums = rows.new_zeros(len(counts), rows.shape[1]).index_add_(0, labels - known, rows)
    return sums / counts[:, None]


def double_class_means(activations: Tensor, labels: Tensor, k: int) -> Tensor:
    """Give the mean of each of k classes, summed in blocks, float64 [k d]; refuse labels and values that do not fit."""
    check_rows(activations, labels)
    counts = count_classes(labels, k)
    check_no_gaps(counts)
    sums = torch.zeros(k, activations.shape[1], dtype=torch.float64)
    for x, y in blocks(activations, labels):
        sums.index_add_(0, y, x)
    if not bool(sums.isfinite().all()):
        raise InputError("Some activations are infinite or not a number; did training diverge?")
    return sums / counts[:, None]


class ClassMoments:
    """Counts [k], class sums [k d] and second moment Σ x xᵀ [d d] of rows that are added a block at a time."""

    def __init__(self, classes: int, features: int) -> None:
        self.features = features
        self.counts = torch.zeros(classes, dtype=torch.int64)
        self.sums = torch.zeros(classes, features, dtype=torch.float64)
        self.second = torch.zeros(features, features, dtype=torch.float64)

    def add(self, x: Tensor, labels: Tensor) -> None:
        """Add float64 rows [n d] with their labels [n]."""
        self.counts += torch.bincount(labels, minlength=len(self.counts))
        self.sums.index_add_(0, labels, x)
        self.second.addmm_(x.T, x)

    def joined(self, other: "ClassMoments") -> "ClassMoments":
        """Give the moments of these classes and, numbered after them, the other's."""
        joined = ClassMoments(0, self.features)
        joined.counts = torch.cat([self.counts, other.counts])
        joined.sums = torch.cat([self.sums, other.sums])
        joined.second = self.second + other.second
        return joined

    def plus(self, other: "ClassMoments") -> "ClassMoments":
        """Give the moments of these rows and of the other's, of the same classes."""
        both = ClassMoments(0, self.features)
        both.counts, both.sums = self.counts + other.counts, self.sums + other.sums
        both.second = self.second + other.second
        return both

    def present(self) -> "ClassMoments":
        """Give the same moments without the classes that have no row."""
        kept = ClassMoments(0, self.features)
        kept.counts, kept.sums, kept.second = self.counts[self.counts > 0], self.sums[self.counts > 0], self.second
        return kept

    def means(self) -> Tensor:
        """Give the mean of each class, [k d]."""
        return self.sums / self.counts[:, None]

    def freedom(self) -> int:
        """Say how many independent residuals there are: n − k, since a class of one image has none."""
        return int(self.counts.sum()) - len(self.counts)

    def within(self) -> Tensor:
        """Give the within-class covariance Σ_W = (Σ x xᵀ − Σ_c n_c μ_c μ_cᵀ) / (n − k), [d d]."""
        means = self.means()
        return (self.second - (means * self.counts[:, None]).T @ means) / self.freedom()
