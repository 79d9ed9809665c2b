import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from masil.concepts import nnls


def problem(n: int, d: int, v: int, seed: int, margin: float = 0.0) -> tuple[Tensor, Tensor]:
    """A random problem; with a margin, one where p and its multiplier never vanish together, so that P is smooth."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        A = torch.randn(n, d, generator=generator, dtype=torch.float64)
        Q = torch.rand(v, d, generator=generator, dtype=torch.float64)
        found = nnls(A, Q)
        if float((found.coefficients + found.multipliers).min()) > margin:
            return A.requires_grad_(), Q.requires_grad_()


def coefficients(A: Tensor, Q: Tensor) -> Tensor:
    return nnls(A, Q).coefficients


# PyTorch compiles some of its own forward derivatives on first use, and warns of the compiler.
forward = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


@forward
@pytest.mark.parametrize(("n", "d", "v"), [(1, 1, 1), (2, 5, 3), (1, 4, 4), (1, 8, 5)])
def test_gradients_agree_with_finite_differences_once_and_twice_forwards_and_backwards(n: int, d: int, v: int) -> None:
    A, Q = problem(n, d, v, seed=n, margin=1e-3)
    assert gradcheck(coefficients, (A, Q), check_forward_ad=True)
    assert gradgradcheck(coefficients, (A, Q))


@given(st.integers(0, 2**32), st.integers(2, 10), st.integers(1, 6), st.floats(0.5, 2))
@settings(deadline=None, max_examples=50)
def test_a_small_step_moves_the_coefficients_as_the_gradient_says(seed: int, d: int, v: int, scale: float) -> None:
    A, Q = problem(2, d, min(v, d), seed, margin=1e-2)
    Q = (Q * scale).detach().requires_grad_()
    generator = torch.Generator().manual_seed(seed)
    dA, dQ, weights = (
        torch.randn(size, generator=generator, dtype=torch.float64) for size in (A.shape, Q.shape, (2, len(Q)))
    )
    by_A, by_Q = torch.autograd.grad((coefficients(A, Q) * weights).sum(), (A, Q))
    step = 1e-6 / float(torch.linalg.cond(Q.detach()))
    ahead, behind = (coefficients(A + s * dA, Q + s * dQ).detach() for s in (step, -step))
    expected = float(((ahead - behind) * weights).sum()) / (2 * step)
    assert float((by_A * dA).sum() + (by_Q * dQ).sum()) == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_the_gradient_is_the_formula_of_the_free_set() -> None:
    A, Q = problem(1, 7, 4, seed=3)
    P = coefficients(A, Q)
    free = P[0] > 0
    assert 0 < int(free.sum()) < 4
    QF = Q[free].detach()
    jacobian = torch.stack([torch.autograd.grad(P[0, j], A, retain_graph=True)[0][0] for j in range(4)])
    torch.testing.assert_close(jacobian[free], torch.linalg.inv(QF @ QF.T) @ QF)
    assert not jacobian[~free].any()


def test_a_coefficient_whose_multiplier_vanishes_too_counts_as_bound() -> None:
    A = torch.tensor([[2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    found = nnls(A, torch.eye(2, dtype=torch.float64))
    assert found.coefficients[0, 1] == found.multipliers[0, 1] == 0
    (gradient,) = torch.autograd.grad(found.coefficients.sum(), A)
    assert gradient.tolist() == [[1.0, 0.0]]


def test_equal_concepts_share_the_gradient_equally() -> None:
    A, Q = problem(3, 8, 3, seed=4, margin=1e-3)
    single = torch.autograd.grad(coefficients(A, Q).square().sum(), A)[0]
    P = coefficients(A, torch.cat([Q, Q]))
    double = torch.autograd.grad((P[:, :3] + P[:, 3:]).square().sum(), A)[0]
    torch.testing.assert_close(double, single)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_more_concepts_than_features_have_finite_gradients_that_keep_the_reconstruction_right(
    dtype: torch.dtype,
) -> None:
    # Where A is inside the cone of Q, P Q = A whatever P, so that the gradient of Σ PQ with respect to A is one.
    generator = torch.Generator().manual_seed(5)
    Q = torch.rand(9, 3, generator=generator, dtype=dtype)
    A = (torch.rand(4, 9, generator=generator, dtype=dtype) @ Q).requires_grad_()
    P = coefficients(A, Q)
    torch.testing.assert_close(P @ Q, A, rtol=1e-4, atol=1e-5)
    inside = (P > 0).sum(1) >= 3
    assert bool(inside.any())
    (gradient,) = torch.autograd.grad((P @ Q).sum(), A)
    torch.testing.assert_close(gradient[inside], torch.ones_like(A)[inside], rtol=1e-2, atol=1e-2)


def test_only_the_gradients_asked_for_are_computed_and_only_coefficients_carry_the_graph() -> None:
    A, Q = problem(2, 5, 3, seed=6)
    found = nnls(A.detach(), Q)
    assert found.coefficients.requires_grad
    assert not any(t.requires_grad for t in (found.multipliers, found.residual))
    assert not nnls(A.detach(), Q.detach()).coefficients.requires_grad
    with torch.no_grad():
        assert not nnls(A, Q).coefficients.requires_grad


def test_float32_gradients_agree_with_float64() -> None:
    A, Q = problem(20, 30, 10, seed=7)
    weights = torch.linspace(-1, 1, 10, dtype=torch.float64)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        a, q = A.detach().to(dtype).requires_grad_(), Q.detach().to(dtype).requires_grad_()
        gradients.append(torch.autograd.grad((coefficients(a, q) * weights.to(dtype)).sum(), (a, q)))
    for single, double in zip(*gradients, strict=True):
        torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-3)


@forward
@pytest.mark.parametrize(("rows", "threads"), [(2, 1), (2_200, 2)])  # the second are shared out to two threads
def test_derivatives_flow_forwards_from_either_input_alone(rows: int, threads: int, one_thread: None) -> None:
    torch.set_num_threads(threads)
    A, Q = (t.detach() for t in problem(2, 6, 3, seed=8, margin=1e-3))
    A = A.repeat(rows // 2, 1)
    with forward_ad.dual_level():
        by_A = forward_ad.unpack_dual(coefficients(forward_ad.make_dual(A, A), Q)).tangent
        by_Q = forward_ad.unpack_dual(coefficients(A, forward_ad.make_dual(Q, Q))).tangent
    # P is homogeneous of degree 1 in A and −1 in Q (Euler).
    torch.testing.assert_close(by_A, coefficients(A, Q))
    torch.testing.assert_close(by_Q, -coefficients(A, Q))


def test_no_rows_have_empty_gradients() -> None:
    A, Q = torch.empty(0, 4, requires_grad=True), torch.rand(3, 4, requires_grad=True)
    by_A, by_Q = torch.autograd.grad(coefficients(A, Q).sum(), (A, Q))
    assert by_A.shape == (0, 4)
    assert not by_Q.any()
