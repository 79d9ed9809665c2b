"""Is this any class that was taught? A probability at even odds, fitted on base classes that play never taught.

The base classes are divided into folds, and g is learnt once more without each. Of the classes of a fold one half is
then taught by a few shots, as novel classes are, the other half never; then the halves change roles. Known are images
of taught classes that nothing was learnt from, unknown are all images of those never taught. A logistic regression
learns to tell the two from four facts:

    the cosine to the nearest class; the mean cosine to the next few, which is high among classes that are all alike;
    how closely the nearest class's own images lie together; and how far from the centre the embedding lies, log ‖g(a)‖.

These four were chosen in this way on CUB-200's base classes alone, against the cosine, the largest probability, the
energy, the distance in whitened space, the reconstruction error of concepts and others (`benchmarks/unknown.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from scipy import optimize
from scipy.special import expit
from torch import Tensor

from masil.collapse import Embedding, class_means
from masil.learner.balance import pairwise
from masil.learner.memory import unit

NEXT = 5  # classes after the nearest that say whether all are alike
SHOTS = 5  # of the classes that stand in for novel ones
FOLDS = 3  # of the base classes
FOUND = 0.6  # share of what was never taught that is to be called so: more often than not, with a margin
FEWEST = 10  # images of either kind; below, there is nothing to learn from


@final
@dataclass(frozen=True)
class Rejector:
    """P(known) = σ(weights · evidence + intercept), and how well it told the base images apart."""

    weights: tuple[float, ...]  # [4]
    intercept: float
    threshold: float  # of P(known), below which an image is called unknown
    auroc: float  # of images of taught classes against those never taught, on the base images it was fitted on
    images: int  # that played never taught

    def known(self, facts: Tensor) -> Tensor:
        """Give for evidence [n 4] the probability that the image is of a class that was taught, at even odds; [n]."""
        return torch.sigmoid(facts.double() @ torch.tensor(self.weights, dtype=torch.float64) + self.intercept)


def evidence(cosines: Tensor, lengths: Tensor, tight: Tensor) -> Tensor:
    """Give the four facts [n 4] of images with these cosines [n k] to classes of this tightness [k], ‖g(a)‖ [n]."""
    count = min(NEXT + 1, len(tight))
    best = cosines.topk(count, 1)
    nearest, others = best.values[:, 0], best.values[:, 1:]
    following = others.mean(1) if count > 1 else torch.zeros_like(nearest)
    lengths = lengths.clamp_min(torch.finfo(lengths.dtype).tiny).log()
    return torch.stack([nearest, following, tight[best.indices[:, 0]], lengths], 1)


def tightness(means: Tensor, counts: Tensor) -> Tensor:
    """Estimate ‖μ‖ [k], the length of each class's true mean embedding: 1 where all its images point the same way.

    (n‖m‖² − 1)/(n − 1) estimates q = ‖μ‖² (see `pairwise`). One more image with the average q̄ of all classes steadies
    it, and makes q̄ of a class with one image: q̂ = (n‖m‖² − 1 + q̄)/n.
    """
    above = counts * means.square().sum(1) - 1
    return ((above + pairwise(means, counts)) / counts).clamp(0, 1).sqrt()


@torch.no_grad()
def fit_rejector(
    x: Tensor,
    labels: Tensor,
    held: Tensor,
    make: Callable[[Tensor, Tensor], Embedding],
    vectors: Tensor | None,
    seed: int,
) -> Rejector | None:
    """Fit on x = a^p [n d] of classes 0 … k − 1, of which `held` bool [n] are not learnt from; None if too few.

    `make` learns g from rows and labels. `vectors` [k d'] are the base classes', where they are not their means. A g
    that was trained on all base classes knows those that play never taught, too, and then the figures flatter it.
    """
    k = int(labels.max()) + 1
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(k, generator=generator)
    taught, never = [torch.empty(0, 4)], [torch.empty(0, 4)]
    for fold in order.tensor_split(min(FOLDS, k)):
        base = torch.ones(k, dtype=torch.bool)
        base[fold] = False
        rows = base[labels] & ~held
        if int(base.sum()) < 2 or int(torch.bincount(labels[rows]).max()) < 2:
            return None
        g = make(x[rows], torch.unique(labels[rows], return_inverse=True)[1])
        raw = g.transform(x)
        shots = _shots(labels, ~base[labels] & ~held, generator)
        for few, away in (fold.tensor_split(2), fold.tensor_split(2)[::-1]):
            known = base.clone()
            known[few] = True
            learnt = (rows | shots) & known[labels]
            facts = _facts(raw, labels, learnt, known, base, vectors)
            taught.append(facts[held & known[labels]])
            never.append(facts[torch.isin(labels, away)])
    images = min(sum(map(len, taught)), sum(map(len, never)))
    return None if images < FEWEST else _logistic(torch.cat(taught), torch.cat(never))


def _facts(raw: Tensor, labels: Tensor, learnt: Tensor, known: Tensor, base: Tensor, vectors: Tensor | None) -> Tensor:
    """Give the evidence [n 4] of all images g(a), once the classes `known` [k] are made of the images `learnt`."""
    place = known.cumsum(0) - 1
    own = place[labels[learnt]]
    means = class_means(unit(raw[learnt]), own)
    w = unit(means)
    if vectors is not None:
        w[base[known]] = unit(vectors)[base]
    tight = tightness(means, torch.bincount(own))
    return evidence(unit(raw) @ w.T, raw.norm(dim=1), tight)


def _shots(labels: Tensor, among: Tensor, generator: torch.Generator) -> Tensor:
    """Choose a few of each class's images `among` bool [n]; bool [n]."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for label in torch.unique(labels[among]).tolist():
        rows = (among & (labels == label)).nonzero()[:, 0]
        chosen[rows[torch.randperm(len(rows), generator=generator)[:SHOTS]]] = True
    return chosen


def _logistic(taught: Tensor, never: Tensor) -> Rejector:
    """Fit by maximum likelihood with ½‖w‖² on standardised facts, both kinds alike in weight."""
    rows = torch.cat([taught, never]).double()
    centre, scale = rows.mean(0), rows.std(0).clamp_min(1e-9)
    x = ((rows - centre) / scale).numpy()
    counts = [len(taught), len(never)]
    sign = np.repeat([1.0, -1.0], counts)
    weight = np.repeat([min(counts) / count for count in counts], counts)

    def loss(w: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        margin = sign * (x @ w[:-1] + w[-1])
        pull = -weight * sign * expit(-margin)
        gradient = np.append(x.T @ pull + w[:-1], pull.sum())
        return float(weight @ np.logaddexp(0, -margin) + 0.5 * w[:-1] @ w[:-1]), gradient

    found = torch.from_numpy(optimize.minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B").x)
    weights = found[:-1] / scale  # back to the facts' own units
    intercept = float(found[-1] - weights @ centre)
    known = torch.sigmoid(rows @ weights + intercept)
    high, low = known[: len(taught)], known[len(taught) :]
    return Rejector(tuple(weights.tolist()), intercept, float(low.quantile(FOUND)), auroc(high, low), len(never))


def auroc(higher: Tensor, lower: Tensor) -> float:
    """Give the share of pairs in which the one of `higher` is larger; equals count half."""
    ordered = lower.sort().values
    below = torch.searchsorted(ordered, higher, side="left") + torch.searchsorted(ordered, higher, side="right")
    return float(below.double().mean()) / (2 * len(lower))
