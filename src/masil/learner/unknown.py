"""Detect images of classes that the model was never taught.

A logistic regression, fitted on base classes that were left out on purpose, gives P(known), assuming known and unknown
images are equally frequent. The base classes are divided into folds, and g is learnt once more without each. Of the
classes of a fold one half is then taught by a few shots, as novel classes are, the other half never; then the halves
change roles. Known are images of taught classes that nothing was learnt from, unknown are all images of those never
taught. The regression learns to tell the two from four facts:

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
from torch import Tensor

from masil.collapse import Embedding, class_means
from masil.learner.calibration import mean_pair_cosine
from masil.learner.rows import Shots, unit
from masil.protocol import class_folds, some_of_each

NEXT_CLASSES = 5  # after the nearest, that say whether all are alike
SHOTS = 5  # of the classes that stand in for novel ones
FOLDS = 3  # of the base classes, each of which g is learnt without
REJECTION_RATE = 0.6  # of images never taught that are to be called unknown: more often than not, with a margin
MIN_IMAGES = 10  # of either kind; below, there is nothing to learn from


@final
@dataclass(frozen=True)
class UnknownDetector:
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
    count = min(NEXT_CLASSES + 1, len(tight))
    best = cosines.topk(count, 1)
    nearest, others = best.values[:, 0], best.values[:, 1:]
    following = others.mean(1) if count > 1 else torch.zeros_like(nearest)
    lengths = lengths.clamp_min(torch.finfo(lengths.dtype).tiny).log()
    return torch.stack([nearest, following, tight[best.indices[:, 0]], lengths], 1)


def tightness(means: Tensor, counts: Tensor) -> Tensor:
    """Estimate ‖μ‖ [k], the length of each class's true mean embedding: 1 where all its images point the same way.

    (n‖m‖² − 1)/(n − 1) estimates q = ‖μ‖² (see `mean_pair_cosine`). One more image with the average q̄ of all classes
    steadies it, and makes q̄ of a class with one image: q̂ = (n‖m‖² − 1 + q̄)/n.
    """
    above = counts * means.square().sum(1) - 1
    return ((above + mean_pair_cosine(means, counts)) / counts).clamp(0, 1).sqrt()


@torch.no_grad()
def fit_detector(
    base_shots: Shots, held: Tensor, make: Callable[[Tensor], Embedding], *, class_vectors: Tensor | None, seed: int
) -> UnknownDetector | None:
    """Fit on the images of the base session, of which `held` bool [n] are not learnt from; None if too few.

    `make` learns g from some of the rows, bool [n]. `class_vectors` [k d'] are the base classes', where they are not
    their means. A g that was trained on all base classes knows those that play never taught, too, and then the figures
    flatter it.
    """
    codes, k = base_shots.codes, len(base_shots.labels)
    generator = torch.Generator().manual_seed(seed)
    taught, never = [torch.empty(0, 4)], [torch.empty(0, 4)]
    for fold in class_folds(codes, FOLDS, generator):
        base = torch.ones(k, dtype=torch.bool)
        base[fold] = False
        rows = base[codes] & ~held
        if int(base.sum()) < 2 or int(torch.bincount(codes[rows]).max()) < 2:
            return None
        raw = make(rows).transform(base_shots.x)
        h, lengths = unit(raw), raw.norm(dim=1)
        shots = some_of_each(codes, lambda _: SHOTS, generator, ~base[codes] & ~held)
        halves = fold.tensor_split(2)
        for few, away in (halves, halves[::-1]):
            known = base.clone()
            known[few] = True
            learnt = (rows | shots) & known[codes]
            class_index = (known.cumsum(0) - 1)[codes[learnt]]  # among the known classes
            means = class_means(h[learnt], class_index)
            vectors, tight = unit(means), tightness(means, torch.bincount(class_index))
            if class_vectors is not None:
                vectors[base[known]] = unit(class_vectors)[base]
            for kind, asked in ((taught, held & known[codes]), (never, torch.isin(codes, away))):
                kind.append(evidence(h[asked] @ vectors.T, lengths[asked], tight))
    images = min(sum(map(len, taught)), sum(map(len, never)))
    return None if images < MIN_IMAGES else _logistic(torch.cat(taught), torch.cat(never))


def _logistic(taught: Tensor, never: Tensor) -> UnknownDetector:
    """Fit by maximum likelihood with ½‖w‖² on standardised facts, both kinds alike in weight."""
    from scipy import optimize  # here, because to answer takes none of it
    from scipy.special import expit

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

    solution = torch.from_numpy(optimize.minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B").x)
    weights = solution[:-1] / scale  # back to the facts' own units
    intercept = float(solution[-1] - weights @ centre)
    known = torch.sigmoid(rows @ weights + intercept)
    high, low = known[: len(taught)], known[len(taught) :]
    threshold = float(low.quantile(REJECTION_RATE))
    return UnknownDetector(
        tuple(weights.tolist()), intercept, threshold, auroc=auroc(high, low), images=len(never)
    )  # fmt: skip


def auroc(higher: Tensor, lower: Tensor) -> float:
    """Give the share of pairs in which the one of `higher` is larger; equals count half."""
    ordered = lower.sort().values
    below = torch.searchsorted(ordered, higher, side="left") + torch.searchsorted(ordered, higher, side="right")
    return float(below.double().mean()) / (2 * len(lower))
