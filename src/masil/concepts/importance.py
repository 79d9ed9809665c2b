"""How much each concept matters to a score: gradient × coefficient."""

from collections.abc import Callable

import torch
from torch import Tensor

from masil.errors import InputError

Score = Callable[[Tensor], Tensor]  # coefficients [m v] → scores [m]


def gradient_importance(score: Score, coefficients: Tensor) -> Tensor:
    """Give p_j ∂score/∂p_j [n v]: for a linear score, what each concept adds to it; the rows then sum to the score."""
    if coefficients.ndim != 2 or not coefficients.is_floating_point():
        raise InputError(
            f"Coefficients must be floating-point [n v], but are {coefficients.dtype} {list(coefficients.shape)}."
        )
    with torch.enable_grad():
        p = coefficients.detach().requires_grad_()
        scores = score(p)
        if scores.shape != p.shape[:1]:
            raise InputError(
                f"The score of coefficients {list(p.shape)} must be [{len(p)}], but is {list(scores.shape)}; "
                "does it choose one class?"
            )
        (gradient,) = torch.autograd.grad(scores.sum(), p)
    return coefficients.detach() * gradient
