from functools import partial

import pytest
import torch
from torch import Tensor

from masil.concepts import nnls
from masil.concepts.nmf_curvature import Curvature, conjugate_gradients, shortest_least_squares

# Away from a stationary point S is still the Hessian of ψ(Q) = min_{P>=0} ½‖A − PQ‖², as long as no zero of P moves.


@pytest.fixture
def point() -> tuple[Tensor, Tensor, Tensor]:
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    A = (draw(15, 4).relu() @ draw(4, 7).relu() + 0.1 * draw(15, 7)).relu()
    Q = torch.nn.functional.normalize(draw(3, 7).relu() + 0.05, dim=1)
    return A, nnls(A, Q).coefficients, Q


def slope(A: Tensor, Q: Tensor) -> Tensor:
    """∇ψ = Pᵀ(PQ − A)."""
    P = nnls(A, Q).coefficients
    return P.T @ (P @ Q - A)


def test_it_is_the_derivative_of_the_gradient(point: tuple[Tensor, Tensor, Tensor]) -> None:
    A, P, Q = point
    S = Curvature(A, P, Q, torch.ones_like(Q, dtype=torch.bool))
    Y = S.tangent(torch.randn(Q.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    difference = (slope(A, Q + 1e-6 * Y) - slope(A, Q - 1e-6 * Y)) / 2e-6
    torch.testing.assert_close(S(Y), S.tangent(difference), rtol=1e-6, atol=1e-7)


def test_it_is_symmetric_on_the_free_tangents(point: tuple[Tensor, Tensor, Tensor]) -> None:
    A, P, Q = point
    free = torch.rand(Q.shape, generator=torch.Generator().manual_seed(2)) < 0.7
    S = Curvature(A, P, Q, free)
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    Y, Z = S.tangent(draw(Q.shape)), S.tangent(draw(Q.shape))
    assert float((Z * S(Y)).sum()) == pytest.approx(float((Y * S(Z)).sum()))
    for tangent in (Y, S(Y)):
        assert not bool(tangent[~free].any())
        torch.testing.assert_close((tangent * Q).sum(1), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)


def test_a_concept_that_no_row_uses_is_held(point: tuple[Tensor, Tensor, Tensor]) -> None:
    A, P, Q = point
    S = Curvature(A, P * torch.tensor([1, 0, 1]), Q, torch.ones_like(Q, dtype=torch.bool))
    assert not bool(S.tangent(torch.rand_like(Q))[1].any())


def spd(size: int, rank: int, seed: int) -> Tensor:
    root = torch.randn(size, rank, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return root @ root.T


def test_conjugate_gradients_solve_and_notice_flat_directions() -> None:
    matrix, right, scale = spd(8, 8, 0), torch.arange(8.0, dtype=torch.float64)[:, None], torch.rand(8, 1).double() + 1
    found = conjugate_gradients(lambda y: matrix @ y, right, scale, 1e-12, max_iterations=100)
    assert found.positive
    assert found.residual <= 1e-12
    torch.testing.assert_close(matrix @ found.solution, right)
    flat = spd(8, 5, 0)
    assert not conjugate_gradients(lambda y: flat @ y, right, scale, 1e-12, max_iterations=100).positive
    assert not conjugate_gradients(lambda y: -(matrix @ y), right, scale, 1e-12, max_iterations=100).positive
    assert not bool(conjugate_gradients(lambda y: matrix @ y, 0 * right, scale, 0, max_iterations=9).solution.any())


def test_a_right_hand_side_of_rounding_alone_has_the_solution_zero() -> None:
    # Two terms of size one cancel but for 1e-17, and what is left points where there is no curvature.
    matrix, scale = torch.diag(torch.tensor([1.0, 2.0, 0.0])).double(), torch.ones(3, 1).double()
    rounding = torch.tensor([[0.0], [1e-17], [1e-17]]).double()

    def flat(y: Tensor) -> Tensor:
        return matrix @ y

    assert not conjugate_gradients(flat, rounding, scale, 1e-10, max_iterations=9).positive
    found = conjugate_gradients(flat, rounding, scale, 1e-10, max_iterations=9, size=1.0)
    assert found.positive
    assert found.residual <= 1e-10
    assert not bool(found.solution.any())


def test_the_shortest_least_squares_solution_is_that_of_the_pseudo_inverse() -> None:
    class Flat:
        scale = torch.tensor([[1.0], [2.0], [4.0], [0.5]], dtype=torch.float64)
        matrix = spd(4, 2, 1)

        def __call__(self, Y: Tensor) -> Tensor:
            return self.matrix @ Y

    S, right = Flat(), torch.ones(4, 1, dtype=torch.float64)
    found = shortest_least_squares(S, right, 1e-12, max_iterations=50)  # type: ignore[arg-type]
    root = S.scale.sqrt()  # shortest, and least, in the metric of the scale
    expected = torch.linalg.pinv(S.matrix / root / root.T) @ (right / root) / root
    torch.testing.assert_close(found.solution, expected)
