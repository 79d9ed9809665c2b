import math

import pytest
import torch
from torch import Tensor

from masil.concepts.nnls_admm import CHECK_EVERY, REHEARSED, Splitting, _balance, admm, kkt_residual, rehearse
from masil.errors import InputError


def system(n: int, v: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    Q = torch.randn(v, d, generator=generator, dtype=torch.float64).relu()
    Q = Q / Q.norm(dim=1, keepdim=True)
    A = torch.randn(n, d, generator=generator, dtype=torch.float64).relu()
    return Q @ Q.T, A @ Q.T


def textbook(C: Tensor, f: Tensor, rho: float, alpha: float, steps: int, z: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Relaxed ADMM as it stands in Boyd et al. (2011), with a solve in every step."""
    for _ in range(steps):
        x = torch.linalg.solve(C + rho * torch.eye(len(C), dtype=C.dtype), (f + rho * (z - u)).T).T
        x = alpha * x + (1 - alpha) * z
        z = (x + u).clamp_min(0)
        u = u + x - z
    return z, u


def test_a_step_is_the_textbook_step() -> None:
    C, f = system(7, 5, 20)
    splitting = Splitting(C, rho=0.7)
    start = splitting.cold(f)
    z, u = textbook(C, f, 0.7, 1.8, CHECK_EVERY, start.clamp_min(0), start.clamp_max(0))
    found = admm(splitting, f, start, tolerance=1e-300, limit=CHECK_EVERY)
    torch.testing.assert_close(found.state.clamp_min(0), z)
    torch.testing.assert_close(found.state.clamp_max(0), u)


@pytest.mark.parametrize("first", [1, 2, 5])
def test_steps_before_the_first_check_are_textbook_steps_from_the_cold_start(first: int) -> None:
    C, f = system(7, 5, 20)
    splitting = Splitting(C, rho=0.7)
    start = splitting.cold(f)
    z, u = textbook(C, f, 0.7, 1.8, first, start.clamp_min(0), start.clamp_max(0))
    found = admm(splitting, f, None, tolerance=torch.inf, limit=64, first=first)
    torch.testing.assert_close(found.state.clamp_min(0), z)
    torch.testing.assert_close(found.state.clamp_max(0), u)
    assert found.iterations.tolist() == [first] * 7


def test_rows_that_leave_one_after_the_other_keep_the_state_they_left_with() -> None:
    C, f = system(200, 20, 30)
    f = f * torch.logspace(0, 3, 200, dtype=f.dtype)[:, None]
    found = admm(Splitting(C), f, None, tolerance=1e-9, limit=800, first=4)
    assert len(found.iterations.unique()) > 2
    p = found.state.clamp_min(0)
    torch.testing.assert_close(found.gradient, p @ C - f, atol=1e-9, rtol=1e-9)
    expected = kkt_residual(p, p @ C - f, f)
    torch.testing.assert_close(found.residual, expected, atol=1e-13, rtol=0)
    assert float(expected.max()) <= 1.001e-9


def test_a_start_that_was_given_is_left_alone() -> None:
    C, f = system(60, 20, 30)
    start = Splitting(C).cold(f)
    start[:30] = admm(Splitting(C), f, None, tolerance=1e-12, limit=800).state[:30]  # these leave at once
    kept = start.clone()
    admm(Splitting(C), f, start, tolerance=1e-10, limit=800)
    assert torch.equal(start, kept)


@pytest.mark.parametrize("rho", [0.1, 1.0, 10.0])
def test_after_a_rehearsal_most_rows_are_there_at_the_first_check(rho: float) -> None:
    C, f = system(300, 20, 60)
    splitting = Splitting(C, rho=rho)
    first = rehearse(splitting, f, 1e-4, 64)
    assert 0 < first <= 64
    assert 0.05 < splitting.rho < 20
    found = admm(splitting, f, None, tolerance=1e-4, limit=64, first=first)
    assert float((found.iterations <= first).double().mean()) >= REHEARSED


def test_a_rehearsal_that_would_take_too_long_leaves_the_checks_as_they_are() -> None:
    C, f = system(50, 20, 60)
    assert rehearse(Splitting(C), f, 1e-300, 64) == CHECK_EVERY
    assert rehearse(Splitting(C), f, 1e-300, 0) == CHECK_EVERY


def test_minus_rho_u_is_the_multiplier() -> None:
    C, f = system(7, 5, 20)
    splitting = Splitting(C)
    state = admm(splitting, f, splitting.cold(f), tolerance=1e-13, limit=2000).state
    torch.testing.assert_close(-splitting.rho * state.clamp_max(0), (state.clamp_min(0) @ C - f), atol=1e-11, rtol=0)


@pytest.mark.parametrize("rho", [1e-2, 1.0, 1e2])
def test_rho_adapts_from_wherever_it_starts(rho: float) -> None:
    C, f = system(50, 20, 60)
    splitting = Splitting(C, rho=rho)
    found = admm(splitting, f, splitting.cold(f), tolerance=1e-10, limit=400)
    assert float(found.residual.max()) <= 1e-10
    assert 0.05 < splitting.rho < 20


def test_moving_rho_keeps_coefficients_and_multipliers() -> None:
    C, _ = system(3, 4, 9)
    splitting = Splitting(C, rho=2.0)
    p, y = torch.tensor([[1.0, 0, 2, 0]]), torch.tensor([[0.0, 3, 0, 4]])
    assert splitting.warm(p, y).tolist() == [[1.0, -1.5, 2.0, -2.0]]
    splitting.set_rho(4.0)
    assert splitting.warm(p, y).tolist() == [[1.0, -0.75, 2.0, -1.0]]


def test_balancing_keeps_coefficients_and_multipliers() -> None:
    C, f = system(20, 6, 9)
    splitting = Splitting(C, rho=50.0)
    before = admm(splitting, f, splitting.cold(f), tolerance=1e-300, limit=CHECK_EVERY).state
    previous = admm(splitting, f, splitting.cold(f), tolerance=1e-300, limit=0).state
    after = _balance(splitting, previous, before, torch.arange(20))
    assert splitting.rho < 50
    torch.testing.assert_close(after.clamp_min(0), before.clamp_min(0))
    torch.testing.assert_close(splitting.rho * after.clamp_max(0), 50.0 * before.clamp_max(0))


def test_the_residual_is_zero_at_a_solution_and_the_violation_elsewhere() -> None:
    p = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    g = torch.tensor([[0.0, 5.0], [0.5, 5.0], [0.0, -1.0], [0.0, 0.0]])
    f = torch.tensor([[4.0, 1.0], [4.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    assert kkt_residual(p, g, f).tolist() == [0.0, 0.125, 0.5, 0.0]


def test_what_is_not_a_number_never_counts_as_solved() -> None:
    nan = torch.full((1, 2), math.nan)
    assert bool(kkt_residual(nan, nan, nan).isnan().all())


def test_what_is_no_product_of_concepts_is_refused() -> None:
    with pytest.raises(InputError, match="Gram matrix is not positive semi-definite; is it the product"):
        Splitting(torch.tensor([[1.0, 3.0], [3.0, 1.0]]))
