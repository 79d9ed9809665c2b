from functools import partial

import pytest
import scipy.optimize
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from masil.concepts.nmf_updates import PANEL, Coordinates, Splitting, Update, ridge_start

UPDATES = [Coordinates(), Splitting()]


def problem(v: int, m: int, rank: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Factors Q [v d] of some rank, activations A [m d], and a start X [v m]."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return draw(v, rank).relu() @ draw(rank, 12).relu(), draw(m, 12).relu(), draw(v, m).relu()


def phi(X: Tensor, G: Tensor, C: Tensor) -> Tensor:
    return ((0.5 * (G @ X) - C) * X).sum(0)


problems = st.builds(
    problem, v=st.integers(1, 2 * PANEL + 3), m=st.integers(1, 6), rank=st.integers(1, 20), seed=st.integers(0, 2**32)
)


@given(problems, st.sampled_from(UPDATES), st.integers(1, 4))
def test_steps_never_raise_any_column_and_stay_non_negative(
    data: tuple[Tensor, Tensor, Tensor], update: Update, steps: int
) -> None:
    Q, A, X = data
    G, C = Q @ Q.T, Q @ A.T
    state = update.begin(X)
    for _ in range(4):
        before = phi(update.factor(state), G, C)
        update.lower(state, G, C, steps)
        assert bool((update.factor(state) >= 0).all())
        assert bool((phi(update.factor(state), G, C) <= before + 1e-12 * before.abs().clamp_min(1)).all())


@pytest.mark.parametrize("update", UPDATES)
def test_many_steps_solve_the_non_negative_least_squares(update: Update) -> None:
    Q, A, X = problem(PANEL + 2, 5, 12, seed=0)
    G, C = Q @ Q.T, Q @ A.T
    state = update.begin(X)
    update.lower(state, G, C, 5000)
    expected = torch.stack([torch.from_numpy(scipy.optimize.nnls(Q.T.numpy(), row.numpy())[0]) for row in A], 1)
    torch.testing.assert_close(update.factor(state), expected, atol=1e-8, rtol=0)


def test_a_sweep_is_one_exact_minimisation_after_the_other() -> None:
    Q, A, X = problem(2 * PANEL + 1, 3, 12, seed=1)
    G, C = Q @ Q.T, Q @ A.T
    expected = X.clone()
    for j in range(len(G)):
        expected[j] = ((C[j] - G[j] @ expected) / G[j, j] + expected[j]).clamp_min(0)
    Coordinates().lower(X, G, C, 1)
    torch.testing.assert_close(X, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("update", UPDATES)
def test_a_concept_of_length_zero_stays_as_it_is_or_does_no_harm(update: Update) -> None:
    Q, A, X = problem(4, 3, 12, seed=2)
    Q[1] = 0
    G, C = Q @ Q.T, Q @ A.T
    state = update.begin(X)
    update.lower(state, G, C, 2000)
    assert bool(update.factor(state).isfinite().all())
    rest = [0, 2, 3]
    expected = torch.stack([torch.from_numpy(scipy.optimize.nnls(Q[rest].T.numpy(), row.numpy())[0]) for row in A], 1)
    torch.testing.assert_close(update.factor(state)[rest], expected, atol=1e-8, rtol=0)
    if isinstance(update, Coordinates):
        assert torch.equal(state[1], X[1])


def test_the_start_belongs_to_the_state() -> None:
    X = torch.rand(5, 4).T
    for update in UPDATES:
        state = update.begin(X)
        update.factor(state).zero_()
        assert bool((X > 0).all())
        assert update.factor(state).is_contiguous()


def test_the_ridge_start_is_closer_than_zero() -> None:
    Q, A, _ = problem(10, 50, 12, seed=3)
    G, C = Q @ Q.T, Q @ A.T
    assert float(phi(ridge_start(G, C), G, C).sum()) < 0
    assert not bool(ridge_start(torch.zeros(3, 3), torch.zeros(3, 2)).any())
