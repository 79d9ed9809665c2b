import warnings
from functools import partial

import pytest
import torch
from torch import Tensor

from masil.concepts import nmf
from masil.concepts.nmf_polish import _at, _bounded_step, polish


def activations(n: int, d: int, v: int, seed: int) -> Tensor:
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (draw(n, v).relu() @ draw(v, d).relu() + 0.1 * draw(n, d)).relu()


@pytest.mark.parametrize("seed", range(3))
def test_polishing_satisfies_the_kkt_conditions_of_both_factors(seed: int) -> None:
    A = activations(60, 16, 4, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = nmf(A, 4, max_iterations=5)
    point = polish(A, start.concepts)
    P, Q = point.P, point.Q
    E = P @ Q - A
    assert point.residual <= 1e-11
    assert point.objective <= start.objective[-1]
    torch.testing.assert_close(Q.norm(dim=1), torch.ones(4, dtype=torch.float64))
    for factor, gradient in ((P, E @ Q.T), (Q, P.T @ E)):
        assert bool((factor >= 0).all())
        assert float(torch.minimum(factor, gradient).abs().max()) < 1e-7


def test_a_step_ends_at_the_bounds_and_not_beyond() -> None:
    A = activations(60, 16, 4, seed=0)
    Q = nmf(A, 4, max_iterations=500).concepts
    point = _at(A, torch.nn.functional.normalize(Q + 0.003, dim=1))  # away from the zeros it has to come back to
    reached = point.Q + _bounded_step(A, point)
    assert float(reached.min()) > -1e-12
    assert int((reached.abs() < 1e-12).sum()) > 5


def test_it_needs_few_steps_where_alternating_descent_needs_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("masil.concepts.nmf_polish.MAX_STEPS", 12)
    A = activations(200, 24, 6, seed=4)
    assert polish(A, nmf(A, 6, max_iterations=500).concepts).residual < 1e-11
