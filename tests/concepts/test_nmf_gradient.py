import warnings
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from masil.concepts import NMFGradientWarning, NMFResult, nmf
from masil.concepts.nmf_gradient import differentiable


def activations(n: int, d: int, v: int, seed: int) -> Tensor:
    """Near a product of sparse factors: for the seeds used here, those found have zeros enough to be unique."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (draw(n, v).relu() @ draw(v, d).relu() + 0.1 * draw(n, d)).relu()


def factorise(A: Tensor, v: int, start: NMFResult | None = None) -> NMFResult:
    """Factorise from nothing, or from factors near by, so that the same minimum is found again."""
    if start is None:
        return nmf(A, v, max_iterations=500)
    assert start.coefficients is not None
    return nmf(A, v, init=(start.coefficients.detach(), start.concepts.detach()), max_iterations=500)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("factor", ["coefficients", "concepts"])
def test_gradients_agree_with_finite_differences(seed: int, factor: str) -> None:
    A = activations(12, 8, 3, seed).requires_grad_()
    found = factorise(A, 3)
    output = getattr(found, factor)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weights * output).sum(), A)
    for _ in range(3):
        direction = torch.randn(A.shape, generator=generator, dtype=torch.float64) * (A.detach() > 0)
        step = 1e-6
        moved = [
            (weights * getattr(factorise((A.detach() + sign * step * direction).requires_grad_(), 3, found), factor))
            for sign in (1, -1)
        ]
        difference = float((moved[0] - moved[1]).detach().sum()) / (2 * step)
        assert float((gradient * direction).sum()) == pytest.approx(difference, rel=1e-5, abs=1e-6)


def test_gradcheck() -> None:
    A = activations(7, 6, 2, seed=4)
    found = factorise(A.requires_grad_(), 2)
    positive = A.detach() > 0  # the others could not move down

    def both(values: Tensor) -> tuple[Tensor, Tensor]:
        again = factorise(A.detach().masked_scatter(positive, values), 2, found)
        assert again.coefficients is not None
        return again.coefficients, again.concepts

    assert torch.autograd.gradcheck(both, A.detach()[positive].requires_grad_(), eps=1e-6, atol=1e-5, rtol=1e-4)


def test_concepts_are_differentiable_with_respect_to_images() -> None:
    torch_generator = torch.Generator().manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    for weight in backbone.parameters():
        weight.data = torch.randn(weight.shape, generator=torch_generator, dtype=torch.float64)
    images = torch.rand(12, 3, 7, 7, generator=torch_generator, dtype=torch.float64).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error", NMFGradientWarning)
        found = factorise(backbone(images), 3)
        found.concepts[1, found.concepts[1].argmax()].backward()
    assert images.grad is not None
    direction = torch.randn(images.shape, generator=torch_generator, dtype=torch.float64)
    with torch.no_grad():
        rows = [backbone(images + sign * 1e-6 * direction) for sign in (1, -1)]
    up, down = (factorise(moved.requires_grad_(), 3, found).concepts.detach() for moved in rows)
    difference = (up - down)[1, found.concepts[1].argmax()].item() / 2e-6
    assert float((images.grad * direction).sum()) == pytest.approx(difference, rel=1e-5)


def test_unit_concepts_stay_unit_concepts() -> None:
    A = activations(12, 8, 3, seed=1).requires_grad_()
    found = factorise(A, 3)
    (gradient,) = torch.autograd.grad(found.concepts.square().sum(), A)
    assert float(gradient.abs().max()) < 1e-12


def test_moving_along_the_activations_themselves_scales_the_coefficients_alone() -> None:
    A = activations(12, 8, 3, seed=2).requires_grad_()
    found = factorise(A, 3)
    assert found.coefficients is not None
    weights = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value = (weights * found.coefficients).sum()
    (gradient,) = torch.autograd.grad(value, A)
    assert float((gradient * A.detach()).sum()) == pytest.approx(value.item(), rel=1e-6)  # Euler: P is homogeneous


def test_where_all_multipliers_are_zero_zeros_count_as_bound() -> None:
    # An exact factorisation leaves no residual, so that strict complementarity fails at every zero of P and Q. Moves
    # that keep those zeros have a derivative all the same, and it is that of the factors that make them.
    draw = partial(torch.rand, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    P = draw(12, 3) * (torch.arange(12)[:, None] % 3 != torch.arange(3))
    Q = torch.nn.functional.normalize(draw(3, 9) * (torch.arange(9) % 3 != torch.arange(3)[:, None]), dim=1)
    A = (P @ Q).requires_grad_()
    found = nmf(A, 3, init=(P, Q))
    assert found.coefficients is not None
    weights, dP = draw(12, 3), draw(12, 3) * (P > 0)
    (gradient,) = torch.autograd.grad((weights * found.coefficients).sum(), A)
    assert float((gradient * (dP @ Q)).sum()) == pytest.approx(float((weights * dP).sum()), rel=1e-8)


def test_entries_that_are_zero_but_for_rounding_are_zeros() -> None:
    # As above, but with the rounding that one processor or another leaves in place of zeros of Q: free to move, those
    # entries would make the factorisation one of many.
    draw = partial(torch.rand, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    P = draw(12, 3) * (torch.arange(12)[:, None] % 3 != torch.arange(3))
    Q = torch.nn.functional.normalize(draw(3, 9) * (torch.arange(9) % 3 != torch.arange(3)[:, None]), dim=1)
    coefficients, concepts, _, stationary = differentiable((P @ Q).requires_grad_(), Q + 1e-16 * (1 + draw(3, 9)))
    assert stationary
    assert torch.equal(coefficients > 0, P > 0)
    assert torch.equal(concepts > 0, Q > 0)
    (draw(12, 3) * coefficients).sum().backward()  # without a warning


def test_single_precision_goes_through_double_and_back() -> None:
    exact = activations(12, 8, 3, seed=3)
    A = exact.float().requires_grad_()
    found = factorise(A, 3)
    assert found.concepts.dtype == torch.float32
    found.concepts[0, 0].backward()
    assert A.grad is not None
    assert A.grad.dtype == torch.float32
    assert bool(A.grad.isfinite().all())


def test_without_gradients_nothing_is_polished() -> None:
    A = activations(12, 8, 3, seed=3).requires_grad_()
    with torch.no_grad():
        plain = factorise(A, 3)
    assert not plain.concepts.requires_grad
    polished = factorise(A, 3)
    assert polished.concepts.requires_grad
    assert polished.objective[-1] <= plain.objective[-1]
    assert nmf(A, 3, max_iterations=500, coefficients=False).coefficients is None


def test_factors_without_zeros_are_not_unique_and_the_gradient_says_so() -> None:
    # Exact and positive in all entries, so that (P T, T⁻¹ Q) is as good for every T near the identity.
    draw = partial(torch.rand, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    P, Q = draw(12, 3) + 0.5, torch.nn.functional.normalize(draw(3, 8) + 0.5, dim=1)
    A = P @ Q
    found = nmf(A.requires_grad_(), 3, init=(P, Q))
    with pytest.warns(NMFGradientWarning, match="not unique: its factors can move"):
        found.concepts[0, 0].backward()
    assert A.grad is not None
    assert float(A.grad.abs().max()) < 1e3


def test_a_point_that_is_not_stationary_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("masil.concepts.nmf_polish.MAX_STEPS", 0)
    A = activations(40, 20, 5, seed=4).requires_grad_()
    with pytest.warns(NMFGradientWarning, match=r"after polishing its KKT residual is .*, above 1e-07"):
        found = nmf(A, 5, max_iterations=3)
    assert not found.converged
