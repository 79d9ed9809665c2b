import pytest
import torch
from torch import Tensor

from masil.concepts.importance import gradient_importance
from masil.errors import InputError


def test_coefficients_stay_as_they_are() -> None:
    p = torch.rand(1, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    kept = p.detach().clone()
    gradient_importance(lambda c: c.sum(1), p)
    assert torch.equal(p.detach(), kept)
    assert p.grad is None


def test_gradient_importances_of_a_linear_score_sum_to_it() -> None:
    generator = torch.Generator().manual_seed(0)
    p, w = torch.rand(5, 4, generator=generator), torch.randn(4, generator=generator)
    with torch.no_grad():
        found = gradient_importance(lambda c: c @ w, p)
    torch.testing.assert_close(found, p * w)
    torch.testing.assert_close(found.sum(1), p @ w)


def test_gradient_importance_agrees_with_finite_differences() -> None:
    p = torch.rand(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def score(c: Tensor) -> Tensor:
        return (c[:, 0] * c[:, 1]).sin() + c[:, 2].exp() * c[:, 3]

    step = 1e-6 * torch.eye(4, dtype=torch.float64)
    expected = torch.stack([(score(p + s) - score(p - s)) / 2e-6 for s in step], 1) * p
    torch.testing.assert_close(gradient_importance(score, p), expected, rtol=1e-6, atol=1e-8)


def test_bad_input_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"score of coefficients \[2, 3\] must be \[2\], but is \[2, 3\]; does it"):
        gradient_importance(lambda c: c, torch.rand(2, 3))
    with pytest.raises(InputError, match=r"Coefficients must be floating-point \[n v\], but are torch.int64 \[2, 3\]"):
        gradient_importance(lambda c: c.sum(1), torch.ones(2, 3, dtype=torch.int64))
