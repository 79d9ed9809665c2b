import warnings
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from masil.concepts import NMFConvergenceWarning, NMFResult, nmf
from masil.errors import InputError, UnknownNameError

SOLVERS = ("auto", "hals", "admm")


def activations(n: int, d: int, rank: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Non-negative, sparse, of low rank but for some noise."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (draw(n, rank).relu() @ draw(rank, d).relu() + 0.3 * draw(n, d)).relu().to(dtype)


def separable(n: int, d: int, v: int, seed: int) -> tuple[Tensor, Tensor]:
    """Activations whose first v rows are the concepts themselves, and all others mixtures of them."""
    generator = torch.Generator().manual_seed(seed)
    Q = torch.randn(v, d, generator=generator, dtype=torch.float64).relu() + torch.eye(v, d, dtype=torch.float64)
    P = torch.rand(n, v, generator=generator, dtype=torch.float64) * (torch.rand(n, v, generator=generator) < 0.4)
    P[:v] = torch.eye(v, dtype=torch.float64)
    return P @ Q, Q


def fit(A: Any, v: int, **options: Any) -> NMFResult:
    """Factorise, whether it converges or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NMFConvergenceWarning)
        return nmf(A, v, **options)


def half_squared_error(A: Tensor, found: NMFResult) -> float:
    assert found.coefficients is not None
    return 0.5 * float((A.double() - found.coefficients.double() @ found.concepts.double()).square().sum())


problems = st.builds(
    activations,
    n=st.integers(3, 40),
    d=st.integers(3, 20),
    rank=st.integers(0, 6),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)


@given(problems, st.integers(1, 3), st.sampled_from(SOLVERS), st.sampled_from(["nndsvd", "random"]))
@settings(max_examples=100)
def test_factors_are_non_negative_with_unit_concepts_and_the_objective_falls_all_the_way(
    A: Tensor, v: int, solver: str, init: str
) -> None:
    found = fit(A, v, solver=solver, init=init, max_iterations=30)
    P, Q = found.coefficients, found.concepts
    assert P is not None
    assert P.shape == (len(A), v)
    assert Q.shape == (v, A.shape[1])
    assert P.dtype == Q.dtype == A.dtype
    assert bool((P >= 0).all())
    assert bool((Q >= 0).all())
    eps = torch.finfo(A.dtype).eps
    torch.testing.assert_close(Q.norm(dim=1), torch.ones(v, dtype=A.dtype), atol=4 * eps, rtol=0)
    assert 1 <= len(found.objective) <= found.iterations <= 30
    assert all(after < before for before, after in pairwise(found.objective[:-1]))
    energy = float(A.double().square().sum())
    rounding = 4 * eps * energy  # of the Gram form's terms, each as large as the energy
    assert all(after <= before + rounding for before, after in pairwise(found.objective))
    assert half_squared_error(A, found) == pytest.approx(found.objective[-1], rel=1e-6, abs=20 * eps * energy)
    assert found.relative_error == pytest.approx((2 * found.objective[-1] / energy) ** 0.5 if energy else 0.0)


# From given concepts a few iterations are a smooth map, which rounding in float64 moves by far less than these bounds.


@given(st.integers(0, 2**32), st.sampled_from(SOLVERS), st.floats(-20, 20))
@settings(max_examples=25)
def test_activations_times_a_factor_have_coefficients_times_the_same(seed: int, solver: str, power: float) -> None:
    A, Q = activations(30, 12, 4, seed), activations(4, 12, 4, seed + 1) + 0.1
    found, scaled = (fit(rows, 4, solver=solver, init=Q, max_iterations=15, tol=0) for rows in (A, A * 2.0**power))
    assert found.coefficients is not None
    assert scaled.coefficients is not None
    torch.testing.assert_close(scaled.concepts, found.concepts, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(scaled.coefficients / 2.0**power, found.coefficients, rtol=1e-6, atol=1e-7)


@given(st.integers(0, 2**32), st.sampled_from(SOLVERS))
@settings(max_examples=25)
def test_permuted_rows_have_permuted_coefficients(seed: int, solver: str) -> None:
    A, Q = activations(30, 12, 4, seed), activations(4, 12, 4, seed + 1) + 0.1
    order = torch.randperm(30, generator=torch.Generator().manual_seed(seed))
    found, permuted = (fit(rows, 4, solver=solver, init=Q, max_iterations=15, tol=0) for rows in (A, A[order]))
    assert found.coefficients is not None
    assert permuted.coefficients is not None
    torch.testing.assert_close(permuted.concepts, found.concepts, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(permuted.coefficients, found.coefficients[order], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("init", ["nndsvd", "random"])
def test_a_planted_separable_factorisation_is_recovered_up_to_permutation(solver: str, init: str) -> None:
    A, planted = separable(300, 20, 5, seed=3)
    found = fit(A, 5, solver=solver, init=init, max_iterations=3000, tol=1e-7)
    assert found.relative_error < 2e-3
    cosines = (found.concepts @ torch.nn.functional.normalize(planted, dim=1).T).numpy()
    assert cosines[linear_sum_assignment(-cosines)].min() > 0.999


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_objective_is_as_low_as_that_of_scikit_learn(solver: str) -> None:
    # Two local minima, one for each: on average over draws ours is no higher, and it never is by much.
    ratios = []
    for seed in range(4):
        A = activations(600, 48, 12, seed, dtype=torch.float32)
        reference = NMF(8, init="nndsvda", tol=0, max_iter=100)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            P = reference.fit_transform(A.numpy())
        theirs = 0.5 * float(np.square(A.numpy() - P @ reference.components_, dtype=np.float64).sum())
        ratios.append(half_squared_error(A, fit(A, 8, solver=solver, max_iterations=100)) / theirs)
    assert np.mean(ratios) < 1.001  # .99 on these draws, .995 on eight
    assert max(ratios) < 1.02


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("init", ["nndsvd", "random"])
def test_the_seed_alone_decides(init: str) -> None:
    A = activations(4000, 24, 8, seed=1, dtype=torch.float32)  # many enough to be sampled
    before = torch.random.get_rng_state()
    first, again, other = (fit(A, 4, init=init, seed=seed, max_iterations=3) for seed in (7, 7, 8))
    assert torch.equal(first.concepts, again.concepts)
    assert first.objective == again.objective
    assert not torch.equal(first.concepts, other.concepts)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_sample_of_the_rows_is_a_better_start_than_chance() -> None:
    A = activations(8000, 32, 12, seed=2, dtype=torch.float32)
    sampled = fit(A, 8, max_iterations=1)
    # Both go down into the same minimum; on eight draws the first iteration is at most .4% above it, a fifth of this.
    assert sampled.objective[-1] < 1.02 * fit(A, 8, max_iterations=200).objective[-1]


@pytest.mark.parametrize("solver", SOLVERS)
def test_given_factors_are_gone_on_from(solver: str) -> None:
    A = activations(60, 16, 5, seed=4)
    first = fit(A, 5, solver=solver, max_iterations=60)
    P, Q = first.coefficients, first.concepts
    assert P is not None
    scale = torch.tensor([1.0, 2.0, 0.5, 3.0, 8.0], dtype=torch.float64)
    again = fit(A, 5, solver=solver, init=(P / scale, Q * scale[:, None]), max_iterations=5)
    assert again.objective[0] <= first.objective[-1]
    torch.testing.assert_close(fit(A, 5, init=Q, max_iterations=5).concepts, Q, atol=0.05, rtol=0)


def test_without_coefficients_the_concepts_are_as_good() -> None:
    A = activations(500, 32, 10, seed=5)
    whole, alone = fit(A, 6, tol=1e-5), fit(A, 6, tol=1e-5, coefficients=False)
    assert alone.coefficients is None
    assert alone.objective[-1] == pytest.approx(whole.objective[-1], rel=5e-3)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("n", "d", "v"), [(1, 1, 1), (5, 3, 3), (3, 5, 3), (7, 9, 1)])
def test_the_smallest_and_the_fullest_problems_have_an_answer(n: int, d: int, v: int, solver: str) -> None:
    A = activations(n, d, 2, seed=6) + 0.1
    found = fit(A, v, solver=solver, max_iterations=500, tol=1e-9)
    assert found.relative_error < (1e-2 if v == min(n, d) else 1)


@pytest.mark.parametrize("solver", SOLVERS)
def test_zero_activations_have_zero_coefficients(solver: str) -> None:
    found = nmf(torch.zeros(6, 4), 2, solver=solver)
    assert found.coefficients is not None
    assert found.converged
    assert found.relative_error == 0
    assert not bool(found.coefficients.any())
    torch.testing.assert_close(found.concepts.norm(dim=1), torch.ones(2))


def test_more_concepts_than_the_data_have_keep_a_direction() -> None:
    A = torch.outer(torch.arange(1.0, 9.0), torch.arange(6.0))  # rank one
    found = fit(A, 4, max_iterations=50)
    torch.testing.assert_close(found.concepts.norm(dim=1), torch.ones(4))
    assert found.relative_error < 1e-3


def test_not_converging_is_a_warning_that_names_the_knob() -> None:
    A = activations(200, 30, 10, seed=7)
    with pytest.warns(NMFConvergenceWarning, match=r"stopped after 12 iterations.*Raise `max_iterations`.*or `tol`"):
        found = nmf(A, 6, max_iterations=12)
    assert not found.converged
    assert nmf(A, 6, max_iterations=500, tol=1e-2).converged


GOOD = activations(20, 8, 3, seed=8)


@pytest.mark.parametrize(
    ("A", "v", "options", "message"),
    [
        (GOOD - 1, 3, {}, r"activations go down to -1, .* >= 0; were they taken before the ReLU"),
        (GOOD * torch.nan, 3, {}, "activations have NaN or infinite values in 20 of 20 rows"),
        (GOOD + torch.inf, 3, {}, "activations have NaN or infinite values in 20 of 20 rows"),
        (GOOD.int(), 3, {}, "activations are int32; convert them to float32 or float64"),
        (GOOD.numpy().astype(np.int64), 3, {}, "activations are int64; convert them"),
        (GOOD[0], 3, {}, r"shape \[n d\], but have \[8\]"),
        (GOOD, 0, {}, "0 concepts were asked for, but 20 activations of 8 features have between 1 and 8"),
        (GOOD, 9, {}, "9 concepts were asked for, but 20 activations of 8 features have between 1 and 8"),
        (GOOD[:2], 3, {}, "3 concepts were asked for, but 2 activations of 8 features have between 1 and 2"),
        (GOOD[:0], 1, {}, r"no activations to factorise: they have the shape \[0 8\]"),
        (GOOD, 3, {"max_iterations": 0}, "max_iterations >= 1 and tol >= 0, but got 0 and"),
        (GOOD, 3, {"tol": -1.0}, "max_iterations >= 1 and tol >= 0, but got 200 and -1"),
        (GOOD, 3, {"init": torch.ones(3, 7)}, r"initial concepts have shape \[3, 7\], but \[3, 8\] is needed"),
        (GOOD, 3, {"init": torch.eye(3, 8) - 1}, "initial concepts go down to -1"),
        (GOOD, 3, {"init": torch.eye(3, 8).int()}, "initial concepts are torch.int32; give a tensor"),
        (GOOD, 3, {"init": [1, 2]}, "initial concepts are list; give a tensor of float32 or float64"),
        (GOOD, 3, {"init": torch.eye(3, 8) * (torch.arange(8) != 1)}, "Initial concept 1 is zero in all features"),
        (GOOD, 3, {"init": torch.eye(3, 8, device="meta")}, "initial concepts are on meta but the activations on cpu"),
        (GOOD, 3, {"init": (torch.ones(19, 3), torch.eye(3, 8))}, r"initial coefficients have shape \[19, 3\], but"),
        (GOOD, 3, {"init": (torch.ones(20, 3), torch.eye(3, 8)), "coefficients": False}, "P is not held; give Q alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_factorised_is_refused_in_a_sentence(A: Any, v: int, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nmf(A, v, **options)


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="no NMF solver called 'adm'; did you mean 'admm'"):
        nmf(GOOD, 3, solver="adm")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="no initial factorisation called 'nndsvda'; did you mean 'nndsvd'"):
        nmf(GOOD, 3, init="nndsvda")  # type: ignore[arg-type]
