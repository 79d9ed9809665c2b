"""How much each concept matters to a score: Sobol total indices by Jansen's estimator, and gradient × coefficient."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from masil.errors import InputError

Score = Callable[[Tensor], Tensor]  # coefficients [m v] → scores [m]


def sobol_total(score: Score, coefficients: Tensor, n_samples: int = 256, seed: int = 0) -> Tensor:
    """Estimate each concept's total share of the variance of `score` when coefficients are dimmed at random.

    Each row p of `coefficients` is multiplied by masks m, uniform in [0, 1]^v. With Y = score(p∘m), the total index
    of concept j is E[Var(Y | all of m but m_j)] / Var(Y): what is left unexplained when all others are known,
    interactions included. Jansen's estimator of it is
        Σ_i (Y_i − Y_i^(j))² / (2N Var(Y)),
    where Y_i^(j) differs from Y_i only in a fresh m_j. The masks are one scrambled Sobol sequence.

    Args:
        score: a function of coefficients [m v], giving [m].
        coefficients: [n v], for instance those of a class's images; each costs n_samples · (v + 1) scores.
        n_samples: N, best a power of two.
        seed: of the scrambling.

    Returns:
        [n v], the indices of each row, zero where the score does not vary. A class's importances are their mean.

    """
    v = _check(coefficients)
    if n_samples < 2:
        raise InputError(f"A variance needs at least 2 samples, but n_samples is {n_samples}.")
    if 2 * v > SobolEngine.MAXDIM:
        raise InputError(f"Sobol masks exist for up to {SobolEngine.MAXDIM // 2} concepts, but there are {v}.")
    engine: Any = SobolEngine
    masks = engine(2 * v, scramble=True, seed=seed).draw(n_samples, dtype=coefficients.dtype).to(coefficients.device)
    first, fresh = masks[:, :v], masks[:, v:]  # [N v] each
    indices = torch.zeros_like(coefficients)
    with torch.no_grad():
        for row, p in zip(indices, coefficients, strict=True):
            base = _scores(score, p * first)
            variance = base.var()
            if variance <= torch.finfo(base.dtype).eps ** 2 * base.square().mean():
                continue
            for j in range(v):
                mixed = first.clone()
                mixed[:, j] = fresh[:, j]
                row[j] = (base - _scores(score, p * mixed)).square().mean() / (2 * variance)
    return indices


def gradient_importance(score: Score, coefficients: Tensor) -> Tensor:
    """Give p_j ∂score/∂p_j [n v]: for a linear score, what each concept adds to it; the rows then sum to the score."""
    _check(coefficients)
    with torch.enable_grad():
        p = coefficients.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(_scores(score, p).sum(), p)
    return coefficients.detach() * gradient


def _check(coefficients: Tensor) -> int:
    if coefficients.ndim != 2 or not coefficients.is_floating_point():
        raise InputError(
            f"Coefficients must be floating-point [n v], but are {coefficients.dtype} {list(coefficients.shape)}."
        )
    return coefficients.shape[1]


def _scores(score: Score, coefficients: Tensor) -> Tensor:
    scores = score(coefficients)
    if scores.shape != coefficients.shape[:1]:
        raise InputError(
            f"The score of coefficients {list(coefficients.shape)} must be [{len(coefficients)}], "
            f"but is {list(scores.shape)}; does it choose one class?"
        )
    return scores
