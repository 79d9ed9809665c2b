"""How far apart the classes lie: the cosines of class means to class vectors, their own and the others'."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods import Checked, Queries

MOST = 20  # images of a class that a mean is taken over; more would cost time and change little


def class_cosines(method: Checked, activations: Tensor, labels: Tensor) -> tuple[float, float] | None:
    """Give mean_k cos(h_k, w_k) and mean_{k≠k'} cos(h_k, w_k'), h_k the mean embedding of class k, w_k its vector.

    Every class 0 … k − 1 has an image. None for a method that compares no embeddings with class vectors.
    """
    kept = few_of_each(labels)
    geometry = method.geometry(Queries(activations[kept]))
    if geometry is None:
        return None
    embeddings, vectors = (part.detach().float().cpu() for part in geometry)
    k = int(labels.max()) + 1
    sums = torch.zeros(k, embeddings.shape[1]).index_add_(0, labels[kept], embeddings)
    cosines = functional.normalize(sums) @ functional.normalize(vectors[:k]).T  # [k k]
    own_vector = float(cosines.diagonal().mean())
    return own_vector, float((cosines.sum() - cosines.diagonal().sum()) / max(1, k * (k - 1)))


def few_of_each(labels: Tensor, most: int = MOST) -> Tensor:
    """Give the positions of the first `most` images of every class."""
    order = torch.argsort(labels, stable=True)
    counts = torch.bincount(labels)
    starts = counts.cumsum(0) - counts
    rank = torch.arange(len(labels)) - starts[labels[order]]  # among the images of its class
    return order[rank < most].sort().values
