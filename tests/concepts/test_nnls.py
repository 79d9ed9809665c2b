from collections.abc import Callable
from dataclasses import fields
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from masil.concepts import NNLSResult, nnls
from masil.errors import InputError, UnknownNameError

SOLVERS = ("auto", "admm", "pivot")
FLAVOURS = ("activations", "signed", "small integers", "repeated concepts", "nearly repeated concepts")


def problem(
    n: int, d: int, v: int, flavour: str, seed: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    A, Q = draw(n, d), draw(v, d)
    if flavour == "activations":
        A, Q = A.relu(), Q.relu()
    elif flavour == "small integers":  # ties, zero rows, zero concepts, degenerate solutions
        A, Q = A.relu().round(), Q.relu().round()
    elif flavour == "repeated concepts":
        A, Q = A.relu(), Q.relu()[torch.arange(v) // 2]
    elif flavour == "nearly repeated concepts":
        A, Q = A.relu(), Q.relu()[torch.arange(v) // 2] + 1e-4 * draw(v, d).relu()
    return A.to(dtype), Q.to(dtype)


problems = st.builds(
    problem,
    n=st.integers(0, 5),
    d=st.integers(1, 8),
    v=st.integers(1, 10),
    flavour=st.sampled_from(FLAVOURS),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)


def row_size(A: Tensor, Q: Tensor, P: Tensor) -> Tensor:
    """The largest of ‖a‖ and the terms p_j‖q_j‖ of each row's fit [n], or 1: what its rounding is a part of."""
    size = torch.cat([P * Q.norm(dim=1), A.norm(dim=1, keepdim=True)], 1).amax(1)
    return torch.where(size > 0, size, 1)


def assert_as_good(A: Tensor, Q: Tensor, P: Tensor, other: Tensor) -> None:
    """Two solutions of one problem: the same objective, fits and, where the concepts are independent, coefficients.

    Among nearly repeated concepts many points are optimal to rounding. They share the objective; how far their fits
    may lie apart follows from it by strong convexity in P Q: the square root.
    """
    eps = 1e3 * torch.finfo(A.dtype).eps
    A, Q, P, other = A.double(), Q.double(), P.double(), other.double()
    size = row_size(A, Q, P)[:, None]
    missed = [(A - coefficients @ Q).square().sum(1, keepdim=True) / size**2 for coefficients in (P, other)]
    torch.testing.assert_close(missed[0], missed[1], atol=eps, rtol=0)
    torch.testing.assert_close(P @ Q / size, other @ Q / size, atol=eps**0.5, rtol=0)
    values = torch.linalg.svdvals(Q)
    if len(Q) <= Q.shape[1] and values[0] < 100 * values[-1]:
        # A multiplier that is wrong by eps ‖q‖ moves coefficients by eps ‖q‖ / σ², with σ the smallest singular value.
        torch.testing.assert_close(P @ Q / size, other @ Q / size, atol=10 * eps, rtol=0)
        moved = eps * float(values[0] / values[-1] ** 2)
        torch.testing.assert_close(P / size, other / size, atol=moved, rtol=0)


def violation(A: Tensor, Q: Tensor, P: Tensor) -> float:
    """The largest violation of P >= 0, G >= 0 and P∘G = 0, in double precision and beside the size of each row."""
    A, Q, P = A.double(), Q.double(), P.double()
    length = Q.norm(dim=1)
    p, g = P * length, (P @ Q - A) @ Q.T / torch.where(length > 0, length, 1)
    size = row_size(A, Q, P)[:, None]
    return max((float(error.max()) for error in (-p / size, -g / size, p * g / size**2) if error.numel()), default=0.0)


@given(problems, st.sampled_from(SOLVERS))
@settings(deadline=None, max_examples=300)
def test_every_row_satisfies_the_kkt_conditions(data: tuple[Tensor, Tensor], solver: str) -> None:
    A, Q = data
    found = nnls(A, Q, solver=solver)
    eps = torch.finfo(A.dtype).eps
    assert bool(found.converged.all())
    assert bool((found.coefficients >= 0).all())
    assert bool((found.multipliers >= 0).all())
    assert not bool(((found.coefficients > 0) & (found.multipliers > 0)).any())
    assert violation(A, Q, found.coefficients) < 100 * eps
    expected = ((found.coefficients @ Q - A) @ Q.T).clamp_min(0) * (found.coefficients == 0)
    size = torch.cat([A, found.coefficients @ Q]).norm() * Q.norm()
    torch.testing.assert_close(found.multipliers, expected, atol=100 * eps * float(size), rtol=0)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_objective_is_scipys_or_lower_and_unique_coefficients_are_near(flavour: str, solver: str) -> None:
    for seed, (d, v) in enumerate([(12, 5), (30, 20), (8, 8), (6, 15)]):
        A, Q = problem(12, d, v, flavour, seed)
        P = nnls(A, Q, solver=solver).coefficients
        reference = np.stack([scipy.optimize.nnls(Q.T.numpy(), row.numpy())[0] for row in A])
        # Both objectives are computed here: what a solver says of its own residual is not always what it has.
        ours, theirs = ((A - found @ Q).square().sum(1) for found in (P, torch.from_numpy(reference)))
        rounding = 1e-12 * row_size(A, Q, P) ** 2
        assert bool((ours <= theirs + rounding).all())
        if torch.linalg.matrix_rank(Q) == v:
            # ‖(P − P*)Q‖² is at most the distance of the objectives, for us and for them; what they miss is known.
            apart = (P - torch.from_numpy(reference)).norm(dim=1) * torch.linalg.svdvals(Q)[-1]
            assert bool((apart <= ((theirs - ours).clamp_min(0) + rounding).sqrt() + rounding.sqrt()).all())


@given(problems, st.integers(-30, 30), st.integers(-15, 15))
@settings(deadline=None)
def test_coefficients_scale_with_the_activations_and_against_the_concepts(
    data: tuple[Tensor, Tensor], rows: int, concepts: int
) -> None:
    A, Q = data
    base, scaled = nnls(A, Q), nnls(A * 2.0**rows, Q * 2.0**concepts)
    assert bool(scaled.converged.all())
    assert_as_good(A, Q, base.coefficients, scaled.coefficients * 2.0 ** (concepts - rows))
    size = row_size(A, Q, base.coefficients)[:, None] * Q.norm().clamp_min(1e-6)
    multipliers = (base.multipliers / size, scaled.multipliers * 2.0 ** (-rows - concepts) / size)
    torch.testing.assert_close(*multipliers, atol=(1e3 * torch.finfo(A.dtype).eps) ** 0.5, rtol=0)


@given(problems, st.data())
@settings(deadline=None)
def test_permuted_concepts_have_permuted_coefficients(data: tuple[Tensor, Tensor], draw: st.DataObject) -> None:
    A, Q = data
    order = torch.tensor(draw.draw(st.permutations(range(len(Q)))))
    assert_as_good(A, Q, nnls(A, Q).coefficients, nnls(A, Q[order]).coefficients[:, order.argsort()])


def test_the_residual_ignores_the_scale_of_a_single_concept() -> None:
    A, Q = problem(20, 12, 6, "activations", 0)
    Q2 = Q * torch.tensor([1e-6, 1.0, 1e6, 3.0, 1.0, 1.0])[:, None]
    loose, scaled = (nnls(A, q, solver="admm", tol=1e-3) for q in (Q, Q2))
    torch.testing.assert_close(loose.residual, scaled.residual, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_rows_and_zero_concepts_have_zero_coefficients(solver: str, dtype: torch.dtype) -> None:
    A, Q = problem(6, 10, 4, "activations", 1, dtype)
    A[2], Q[1] = 0, 0
    found = nnls(A, Q, solver=solver)
    assert not found.coefficients[2].any()
    assert not found.coefficients[:, 1].any()
    assert not found.multipliers[:, 1].any()
    assert found.residual[2] == 0
    assert bool(found.converged.all())
    without = nnls(A, Q[[0, 2, 3]], solver=solver).coefficients
    torch.testing.assert_close(found.coefficients[:, [0, 2, 3]], without)


def test_equal_concepts_share_equally() -> None:
    A, Q = problem(10, 12, 4, "activations", 2)
    P = nnls(A, torch.cat([Q, Q])).coefficients
    torch.testing.assert_close(P[:, :4], P[:, 4:])
    torch.testing.assert_close(2 * P[:, :4], nnls(A, Q).coefficients)


def test_no_rows_give_an_empty_result() -> None:
    found = nnls(torch.empty(0, 7), torch.rand(3, 7))
    assert found.coefficients.shape == found.multipliers.shape == (0, 3)
    assert found.residual.shape == found.iterations.shape == found.converged.shape == (0,)


def test_one_feature_and_one_concept_are_enough() -> None:
    found = nnls(torch.tensor([[3.0], [-3.0]]), torch.tensor([[2.0]]))
    torch.testing.assert_close(found.coefficients, torch.tensor([[1.5], [0.0]]))
    torch.testing.assert_close(found.multipliers, torch.tensor([[0.0], [6.0]]))


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_neither_huge_nor_tiny_concepts_overflow(scale: float) -> None:
    A, Q = problem(5, 9, 4, "activations", 3, torch.float32)
    found = nnls(A, Q * scale)
    torch.testing.assert_close(found.coefficients * scale, nnls(A, Q).coefficients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_rows_do_not_depend_on_the_threads_that_they_are_shared_out_to(mode: Callable[[], Any]) -> None:
    A, Q = problem(5000, 16, 8, "activations", 4)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with mode():
            shared = nnls(A, Q)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert bool(shared.converged.all())
    assert_as_good(A, Q, shared.coefficients, nnls(A, Q).coefficients)


def test_rows_do_not_depend_on_the_block_they_are_solved_in() -> None:
    A, Q = problem(5000, 16, 8, "activations", 4)
    whole = nnls(A, Q)
    assert bool(whole.converged.all())
    pick = torch.tensor([0, 2047, 2048, 4095, 4999])
    assert_as_good(A[pick], Q, whole.coefficients[pick], nnls(A[pick], Q).coefficients)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_do_not_depend_on_whether_some_were_solved_first(
    flavour: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    A, Q = problem(300, 16, 8, flavour, 10, dtype)
    module = import_module("masil.concepts.nnls")  # the door gives the function of this name
    monkeypatch.setattr(module, "REHEARSAL_ROWS", 20)
    found = []
    for rehearsed_from in (300, 301):
        monkeypatch.setattr(module, "REHEARSED_FROM", rehearsed_from)
        found.append(nnls(A, Q))
        assert bool(found[-1].converged.all())
        assert violation(A, Q, found[-1].coefficients) < 100 * torch.finfo(dtype).eps
    assert_as_good(A, Q, found[0].coefficients, found[1].coefficients)


@pytest.mark.parametrize("row", [0, 1234, 4999])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_single_bad_value_in_any_block_is_refused(row: int, value: float) -> None:
    A, Q = problem(5000, 6, 4, "activations", 11)
    A[row, 2], Q[:, 2] = value, 0  # concepts that do not look there
    with pytest.raises(InputError, match="activations have NaN or infinite values in 1 of 5000 rows"):
        nnls(A, Q)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_same_input_gives_the_same_bits_and_is_left_alone(solver: str) -> None:
    A, Q = problem(50, 20, 12, "activations", 5, torch.float32)
    kept = A.clone(), Q.clone()
    first, second = nnls(A, Q, solver=solver), nnls(A, Q, solver=solver)
    assert all(torch.equal(getattr(first, f.name), getattr(second, f.name)) for f in fields(NNLSResult))
    assert torch.equal(A, kept[0])
    assert torch.equal(Q, kept[1])


def test_a_warm_start_saves_iterations() -> None:
    A, Q = problem(200, 40, 16, "activations", 6)
    cold = nnls(A, Q, solver="admm")
    tolerance = 4 * 16**0.5 * torch.finfo(A.dtype).eps  # the usual one, which some rows only just meet
    assert int(nnls(A, Q, warm=cold, tol=4 * tolerance).iterations.max()) == 0
    nearby = nnls(A * 1.001, Q, solver="admm", warm=cold)
    from_coefficients = nnls(A * 1.001, Q, solver="admm", warm=cold.coefficients)
    assert nearby.iterations.sum() < 0.9 * cold.iterations.sum()  # about .8, on other draws too
    assert from_coefficients.iterations.sum() < 0.9 * cold.iterations.sum()
    assert_as_good(A * 1.001, Q, nearby.coefficients, cold.coefficients * 1.001)


@pytest.mark.parametrize("solver", SOLVERS)
def test_zero_rows_and_zero_concepts_have_zero_coefficients_from_any_start(solver: str) -> None:
    A, Q = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    found = nnls(A, Q, solver=solver, warm=torch.ones(2, 2))
    torch.testing.assert_close(found.coefficients, torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    assert not found.coefficients[0].any()
    assert not found.coefficients[:, 0].any()
    assert bool(found.converged.all())


def test_rows_that_run_out_of_iterations_say_so() -> None:
    A, Q = problem(200, 40, 30, "activations", 7)
    found = nnls(A, Q, solver="pivot", max_iterations=0)
    assert not bool(found.converged.all())
    assert torch.equal(found.converged, found.residual <= 4 * 30**0.5 * torch.finfo(A.dtype).eps)
    assert bool((found.coefficients >= 0).all())


def test_a_loose_tolerance_is_kept_and_costs_less() -> None:
    A, Q = problem(200, 40, 16, "activations", 8)
    loose, tight = nnls(A, Q, solver="admm", tol=1e-2), nnls(A, Q, solver="admm")
    assert float(loose.residual.max()) <= 1e-2
    assert 2 * loose.iterations.sum() < tight.iterations.sum()  # a seventh, on other draws too


def test_converged_rows_leave_the_batch() -> None:
    A, Q = problem(200, 40, 30, "activations", 9)
    iterations = nnls(A, Q, solver="admm").iterations
    assert iterations.min() < iterations.max()


BAD = [
    (torch.rand(3), torch.rand(2, 3), r"takes activations \[n d\] and concepts \[v d\], but got \[3\] and \[2, 3\]"),
    (
        torch.ones(2, 3, dtype=torch.int64),
        torch.rand(2, 3),
        "activations are int64; convert them to float32 or float64",
    ),
    (torch.rand(2, 3), torch.rand(2, 3).half(), "concepts are float16; convert them to float32 or float64"),
    (torch.rand(2, 3), torch.rand(2, 3).double(), "activations are float32 but the concepts float64"),
    (torch.rand(2, 3), torch.rand(2, 3, device="meta"), "activations are on cpu but the concepts on meta; move one"),
    (
        torch.rand(2, 3),
        torch.rand(2, 4),
        "activations have 3 features but the concepts have 4; were they computed with",
    ),
    (torch.rand(2, 3), torch.rand(0, 3), r"concepts have shape \[0, 3\], but NNLS needs at least one concept"),
    (torch.rand(2, 0), torch.rand(2, 0), r"concepts have shape \[2, 0\], but NNLS needs at least one concept"),
    (
        torch.tensor([[1.0, torch.nan], [1.0, 2.0]]),
        torch.rand(2, 2),
        "activations have NaN or infinite values in 1 of 2",
    ),
    (torch.rand(2, 2), torch.full((2, 2), torch.inf), "concepts have NaN or infinite values in 2 of 2 rows"),
]


@pytest.mark.parametrize(("A", "Q", "sentence"), BAD)
def test_input_that_does_not_fit_is_refused_in_a_sentence(A: Tensor, Q: Tensor, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        nnls(A, Q)


def test_options_that_do_not_fit_are_refused_in_a_sentence() -> None:
    A, Q = torch.rand(2, 3), torch.rand(4, 3)
    with pytest.raises(UnknownNameError, match="no NNLS solver called 'pivots'; did you mean 'pivot'"):
        nnls(A, Q, solver="pivots")
    with pytest.raises(InputError, match="needs tol > 0 and max_iterations >= 0, but got 0.0 and 1000"):
        nnls(A, Q, tol=0.0)
    with pytest.raises(InputError, match=r"warm start has shape \[2, 3\] but the problem needs \[2, 4\]"):
        nnls(A, Q, warm=torch.rand(2, 3))


def test_finite_values_whose_sum_overflows_are_accepted() -> None:
    A = torch.full((4, 2), 3e38)
    assert not bool(A.sum().isfinite())
    assert bool(nnls(A / 8, torch.eye(2)).converged.all())
