"""What images that nothing was learnt from say of scores: how sure a score makes us, and how classes compare fairly.

Offsets make base classes (many images) and new classes (few images) compete fairly. An image x goes to class b rather
than c where s_b(x) − s_c(x) > t. With e_b the mean score that b gives its own images and f the mean score that either
gives the other's, that difference is e_b − f on average for images of b and f − e_c for those of c. At its midpoint, a
threshold errs as often for the one class as for the other:

    t = ½ (e_b − f + f − e_c) = ½ e_b − ½ e_c:    from each class's score we subtract half of its own e.

A class with a hundred images in the base session has a large e: its vector is exact and, where the backbone was trained
on it, its embeddings lie close together. A class of five images has a small e, and would lose. What is measured of a
single class is uncertain, so its e is drawn to the mean of its kind, base or novel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

OWN_WEIGHT = 0.25  # of a class's own e beside the mean of its kind
DEFAULT_TEMPERATURE = 16.0  # where no class has an image to spare
TEMPERATURES = (1.0, 1000.0)


@final
@dataclass(frozen=True, eq=False)
class SessionEmbeddings:
    """The shots of a session behind g, and their means by class."""

    embeddings: Tensor  # h [n d'], of the images
    reconstructed: Tensor  # r [n d'], of their reconstructions by the bank
    codes: Tensor  # int64 [n]
    counts: Tensor  # int64 [k]
    means: Tensor  # m [k d']
    induced: Tensor  # r̄ [k d'] (Eq. weights)


def offsets(own_scores: Tensor, base: Tensor) -> Tensor:
    """Give what is subtracted from each score [k], for e [k] of classes that are `base` bool [k] or not."""
    steady = own_scores.clone()
    for kind in (base, ~base):
        if bool(kind.any()):
            steady[kind] = torch.lerp(own_scores[kind].mean(), own_scores[kind], OWN_WEIGHT)
    return steady / 2


def own_scores_of_held_out(cosines: Tensor, codes: Tensor, k: int) -> Tensor:
    """Give e [k] from the cosines [n k] of images nothing was learnt from; a class without such gets the mean."""
    return mean_by_class(cosines.gather(1, codes[:, None])[:, 0], codes, k)


def mean_by_class(values: Tensor, codes: Tensor, k: int) -> Tensor:
    """Give the mean [k] of each class's values [n]; a class without any gets that of all, 0 where there are none."""
    counts = torch.bincount(codes, minlength=k)
    sums = torch.zeros(k).index_add_(0, codes, values)
    overall = values.mean() if len(values) else torch.tensor(0.0)
    return torch.where(counts > 0, sums / counts.clamp_min(1), overall)


def own_scores_of_shots(shots: SessionEmbeddings, a: Tensor, vectors: Tensor, single_shot_share: float) -> Tensor:
    """Give e [k] of classes whose unit vectors w [k d'] were made of these shots, with the prior's share a [k].

    On the shots themselves the mean score is m·w; but they made w. With W = (1 − a) m + a r̄ the part of m·W that comes
    from products of an image with itself would not be there for a new image, and

        share = ((1 − a) ⟨h_i, h_j⟩ + a ⟨h_i, r_j⟩) / ((1 − a) ⟨m, m⟩ + a ⟨m, r̄⟩),   means over i ≠ j,

    is what is left of it. Where there is one shot, there are no pairs: then the share is `single_shot_share`,
    ⟨h_i, h_j⟩ of other classes.
    """
    h, r, means, induced = shots.embeddings, shots.reconstructed, shots.means, shots.induced
    n = shots.counts.to(h)
    pairs = (n - 1).clamp_min(1)
    itself = torch.zeros(len(n)).index_add_(0, shots.codes, (h * r).sum(1)) / n
    among = (means * means).sum(1)
    across = (means * induced).sum(1)
    fresh = torch.lerp((n * among - 1) / pairs, (n * across - itself) / pairs, a)
    share = torch.where(n > 1, fresh / torch.lerp(among, across, a).clamp_min(1e-6), single_shot_share)
    return (means * vectors).sum(1) * share


def mean_pair_cosine(means: Tensor, counts: Tensor) -> Tensor:
    """Estimate ⟨h_i, h_j⟩ of two images of one class, over classes with mean embeddings [k d'] of these counts [k].

    The mean m of n unit vectors has E‖m‖² = q + (1 − q)/n with q = ⟨h_i, h_j⟩, so n‖m‖² − 1 sums up to (n − 1) q.
    """
    return (counts * means.square().sum(1) - 1).sum() / (counts - 1).sum().clamp_min(1)


def temperature(scores: Tensor, codes: Tensor) -> float:
    """Give the factor s for which softmax(s · scores [n k]) makes the classes [n] most probable."""
    from scipy import optimize  # here, because to answer takes none of it

    if not len(codes):
        return DEFAULT_TEMPERATURE
    doubt = 1 / (len(codes) + 2)  # n right answers out of n are no proof of certainty (Laplace; Platt 1999)

    def surprise(log_scale: float) -> float:
        return float(functional.cross_entropy(math.exp(log_scale) * scores.double(), codes, label_smoothing=doubt))

    low, high = (math.log(bound) for bound in TEMPERATURES)
    return math.exp(float(optimize.minimize_scalar(surprise, bounds=(low, high), method="bounded").x))
