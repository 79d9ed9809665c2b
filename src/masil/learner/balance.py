"""Classes of many images and classes of a few on one scale: half of what each expects of its own images is taken off.

Of two classes b and c, an image x goes to b where s_b(x) − s_c(x) > t. With e_b the mean score that b gives its own
images and f the mean score that either gives the other's, that difference is e_b − f on average for images of b and
f − e_c for those of c; its midpoint, where a threshold errs as often for the one as for the other, is

    t = ½ (e_b − f + f − e_c) = ½ e_b − ½ e_c:    each class's score, less ½ e of its own.

A class that the base session has seen a hundred images of has a large e: its vector is exact and, where the backbone
was trained on it, its embeddings lie close together. A class of five has a small one, and would lose. What is measured
of a single class is uncertain, so its e is drawn to the mean of its kind, base or novel.
"""

from __future__ import annotations

import torch
from torch import Tensor

OWN = 0.25  # weight of a class's own e beside the mean of its kind
TRAINED_BALANCE = 0.75  # of the midpoint, where the backbone was trained on the images that e is measured on


def offsets(expected: Tensor, base: Tensor) -> Tensor:
    """Give what is taken off each score [k], for e [k] of classes that are `base` bool [k] or not."""
    steady = expected.clone()
    for kind in (base, ~base):
        if bool(kind.any()):
            steady[kind] = torch.lerp(expected[kind].mean(), expected[kind], OWN)
    return steady / 2


def expected_of_shots(
    h: Tensor, r: Tensor, codes: Tensor, means: Tensor, induced: Tensor, a: Tensor, vectors: Tensor, alone: float
) -> Tensor:
    """Give e [k] of classes whose unit vectors w [k d'] were made of shots h [n d'] and reconstructions r [n d'].

    On the shots themselves the mean score is m·w; but they made w. With W = (1 − a) m + a r̄ the part of m·W that comes
    from products of an image with itself would not be there for a new image, and

        share = ((1 − a) ⟨h_i, h_j⟩ + a ⟨h_i, r_j⟩) / ((1 − a) ⟨m, m⟩ + a ⟨m, r̄⟩),   means over i ≠ j,

    is what is left of it. Where there is one shot, there are no pairs: then the share is `alone`, ⟨h_i, h_j⟩ of other
    classes.
    """
    k = len(means)
    n = torch.bincount(codes, minlength=k).to(h)
    pairs = (n - 1).clamp_min(1)
    itself = torch.zeros(k).index_add_(0, codes, (h * r).sum(1)) / n
    among = (means * means).sum(1)
    across = (means * induced).sum(1)
    fresh = torch.lerp((n * among - 1) / pairs, (n * across - itself) / pairs, a)
    share = torch.where(n > 1, fresh / torch.lerp(among, across, a).clamp_min(1e-6), alone)
    return (means * vectors).sum(1) * share


def expected_of_held_out(cosines: Tensor, labels: Tensor, k: int) -> Tensor:
    """Give e [k] from the cosines [n k] of images nothing was learnt from; a class without such gets the mean."""
    own = cosines.gather(1, labels[:, None])[:, 0]
    counts = torch.bincount(labels, minlength=k)
    sums = torch.zeros(k).index_add_(0, labels, own)
    overall = own.mean() if len(own) else torch.tensor(0.0)
    return torch.where(counts > 0, sums / counts.clamp_min(1), overall)


def pairwise(means: Tensor, counts: Tensor) -> Tensor:
    """Estimate ⟨h_i, h_j⟩ of two images of one class, over classes with mean embeddings [k d'] of these counts [k].

    The mean m of n unit vectors has E‖m‖² = q + (1 − q)/n with q = ⟨h_i, h_j⟩, so n‖m‖² − 1 sums up to (n − 1) q.
    """
    return (counts * means.square().sum(1) - 1).sum() / (counts - 1).sum().clamp_min(1)
