"""How far to trust a covariance that was estimated from few samples: how much of the identity to add to it.

A shrinkage s stands for Σ + s m I, m the mean variance. One follows from how many samples there are. Where all
directions truly vary alike, the eigenvalues of a covariance of f samples in d dimensions spread over m (1 ± √(d/f))²
(Marchenko & Pastur 1967): what lies within 2 √(d/f) m of another is noise, and s = 2 √(d/f) lifts all of them by that.

Others look at the samples. Formulas that find the covariance nearest to the true one
shrink too little for telling new classes apart. What counts there is how well g separates classes that had no part in
Σ, and that can be written down.

Let classes have the means' covariance B and scatter W, and let a prototype be the mean of r shots. For an image of
class a and another class b, with Δ = μ_a − μ_b and noises ε ~ W of the image, e_a, e_b ~ W/r of the prototypes,

    ‖x − p_b‖² − ‖x − p_a‖² = ‖Δ‖² + 2 Δ·(ε − e_b) + 2 ε·(e_a − e_b) + ‖e_b‖² − ‖e_a‖²

must be positive. Its mean is 2 tr B. Its variance, averaged over Δ ~ 2B, is 8 (1 + 1/r) tr WB + (8/r + 4/r²) tr W².
After g = H^½, H = (Σ + s m I)^{-1}, every trace holds an H per matrix, so the squared signal-to-noise ratio is

    (tr HB)² / (2 (1 + 1/r) tr HWHB + (2/r + 1/r²) tr HWHW).
"""

import math

import torch
from torch import Tensor

from masil.collapse.moments import ClassMoments

LARGEST = 1e6  # shrinkage past which the covariance counts for nothing
CANDIDATES: tuple[float, ...] = tuple(2.0 ** (step / 2) for step in range(-14, 21))  # 1/128 … 1024


def sampling_noise(features: int, freedom: int) -> float:
    """Give 2 √(d/f): half the width over which equal variances seem to spread, in units of their mean."""
    return 2 * math.sqrt(features / max(1, freedom))


def choose_shrinkage(halves: tuple[ClassMoments, ClassMoments], shots: int) -> float:
    """Give the s under which either half of the classes is best separated by the other half's covariance.

    Without two classes and some scatter in both halves it falls back on the nearest covariance.
    """
    whole = halves[0].joined(halves[1])
    if min(len(half.counts) for half in halves) >= 2 and min(half.freedom() for half in halves) >= 2:
        first, second = halves
        scores = separation(first.within(), second, shots) + separation(second.within(), first, shots)
        if float(scores.max()) > 0:
            return CANDIDATES[int(scores.argmax())]
    share = oracle_approximating(whole.within(), whole.freedom())
    return share / (1 - share) if share < LARGEST / (1 + LARGEST) else LARGEST


def separation(covariance: Tensor, classes: ClassMoments, shots: int) -> Tensor:
    """Give the squared signal-to-noise ratio of few-shot `classes` whitened by `covariance`, for every candidate s.

    W and B are estimated from the same few images, so each trace is freed of the share that noise puts into it, and
    kept above its least possible value: tr (HW)² >= (tr HW)²/d.
    """
    k, freedom = len(classes.counts), classes.freedom()
    mean = float(covariance.diagonal().mean())
    if not mean > 0:
        return torch.zeros(len(CANDIDATES))
    values, V = torch.linalg.eigh(covariance / mean)
    W = V.T @ classes.within() @ V
    M = (classes.means() - classes.means().mean(0)) @ V
    noisy_B = M.T @ M / (k - 1)  # E = B + W · mean 1/n_c
    share = float((1 / classes.counts).mean())
    WW, WB = W.square(), W * noisy_B
    scores = []
    for s in CANDIDATES:
        h = 1 / (values.clamp_min(0) + s)  # H is diagonal in this basis, so tr HWHB = hᵀ (W ∘ B) h
        scatter = h @ W.diagonal()
        HWHW = torch.maximum(h @ WW @ h - scatter**2 / freedom, scatter**2 / len(h))
        HWHB = (h @ WB @ h - share * HWHW).clamp_min(0)
        signal = (h @ noisy_B.diagonal() - share * scatter).clamp_min(0)
        noise = 2 * (1 + 1 / shots) * HWHB + (2 / shots + 1 / shots**2) * HWHW
        scores.append(float(signal**2 / noise) if float(noise) > 0 else 0.0)
    return torch.tensor(scores)


def oracle_approximating(covariance: Tensor, n: int) -> float:
    """Give the ρ of (1−ρ) S + ρ m I nearest to the true covariance of n Gaussian samples (Chen et al. 2010)."""
    d = len(covariance)
    mean = float(covariance.diagonal().mean())
    square = float(covariance.square().mean())  # tr S² / d²
    spread = (n + 1) * (square - mean**2 / d)
    return 1.0 if spread <= 0 else min(1.0, (square + mean**2) / spread)
