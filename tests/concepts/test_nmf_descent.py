from itertools import pairwise
from threading import Lock

import pytest
import torch
from torch import Tensor

from masil.concepts.nmf_blocks import Blocks, TensorBlocks, block_starts
from masil.concepts.nmf_descent import (
    RULES,
    Descent,
    Factors,
    Momentum,
    descend,
    lower_coefficients,
    unit_rows,
    value_of,
)
from masil.concepts.nmf_init import random_concepts

GENERATOR = torch.Generator().manual_seed(0)
ROWS = torch.randn(400, 24, generator=GENERATOR).relu() @ torch.randn(24, 24, generator=GENERATOR).relu()


def run(rule: str = "hals", iterations: int = 60, *, keep: bool = True) -> Descent:
    start = random_concepts(ROWS, 6, torch.Generator().manual_seed(1))
    factors = Factors.none(6, keep=keep)
    energy = float(ROWS.double().square().sum())
    return descend(TensorBlocks(ROWS), start, factors, RULES[rule], energy, max_iterations=iterations, tol=0)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("keep", [True, False])
def test_no_extrapolation_however_wild_raises_the_objective(
    rule: str, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tame = run(rule, keep=keep)
    monkeypatch.setattr(Momentum, "ahead", lambda self, Q, before: Q if self.resting else Q.flip(1))
    wild = run(rule, keep=keep)
    assert 10 < len(wild.objective) < 50  # of 60 iterations many were rejected
    for found in (tame, wild):
        assert all(after < before for before, after in pairwise(found.objective))
    assert tame.objective[-1] < wild.objective[-1] < 1.2 * tame.objective[-1]


@pytest.mark.parametrize("rule", RULES)
def test_patience_brings_coefficients_closer_to_their_minimum(rule: str) -> None:
    Q, energy = random_concepts(ROWS, 6, torch.Generator().manual_seed(1)), float(ROWS.double().square().sum())

    def value(patience: int) -> float:
        factors = Factors.none(6, keep=False)
        return value_of(energy, *lower_coefficients(TensorBlocks(ROWS), Q, factors, RULES[rule], patience), Q)

    assert value(1) > value(8) > value(64) * (1 - 1e-6)


def test_extrapolation_saves_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = run(iterations=30)
    monkeypatch.setattr(Momentum, "ahead", lambda self, Q, before: Q)
    assert ahead.objective[-1] < run(iterations=45).objective[-1]


def test_momentum_rests_after_a_rejection_and_comes_back_smaller() -> None:
    momentum = Momentum()
    Q, before = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert torch.equal(momentum.ahead(Q, before), Q)
    momentum.accept()
    full = momentum.beta
    momentum.accept()
    assert momentum.beta > full
    reached = momentum.beta
    momentum.reject()
    assert torch.equal(momentum.ahead(Q, before), Q)
    assert momentum.failures == 0
    momentum.reject()
    assert momentum.failures == 1
    momentum.accept()
    assert momentum.failures == 0
    assert momentum.beta < reached == momentum.ceiling
    for _ in range(50):
        momentum.accept()
    assert momentum.beta <= 1


def test_a_row_of_length_zero_keeps_its_former_direction() -> None:
    rows, length = unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    assert torch.equal(rows, torch.tensor([[0.6, 0.8], [0.0, 1.0]]))
    assert torch.equal(length, torch.tensor([5.0, 0.0]))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("keep", [True, False])
def test_blocks_on_threads_of_their_own_are_blocks_one_after_the_other(
    rule: str, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("masil.concepts.nmf_blocks.BLOCK_ENTRIES", 1)  # 256 rows: five blocks
    rows, Q = ROWS.repeat(3, 1), random_concepts(ROWS, 6, torch.Generator().manual_seed(1))
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            factors = Factors.none(6, keep=keep)
            sums = [
                lower_coefficients(TensorBlocks(rows), Q, factors, RULES[rule]) for _ in range(2)
            ]  # cold, then warm
            found.append([*sums[0], *sums[1], *factors.states])
    finally:
        torch.set_num_threads(before)
    assert len(found[0]) == 4 + 5 * keep
    torch.testing.assert_close(found[1], found[0])


def test_a_source_is_read_by_one_thread_at_a_time_and_each_block_once_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("masil.concepts.nmf_blocks.BLOCK_ENTRIES", 1)  # 256 rows: five blocks
    reading, starts = Lock(), []

    class OneAtATime(Blocks):
        features, dtype = ROWS.shape[1], ROWS.dtype

        def __len__(self) -> int:
            return 3 * len(ROWS)

        def read(self, start: int, stop: int) -> Tensor:
            assert reading.acquire(blocking=False)
            starts.append(start)
            rows = ROWS.repeat(3, 1)[start:stop]
            reading.release()
            return rows

    source, before = OneAtATime(), torch.get_num_threads()
    Q = random_concepts(ROWS, 6, torch.Generator().manual_seed(1))
    try:
        torch.set_num_threads(3)
        lower_coefficients(source, Q, Factors.none(6, keep=False), RULES["hals"])
    finally:
        torch.set_num_threads(before)
    assert starts[0] == 0  # where the device is seen
    assert sorted(starts[1:]) == list(block_starts(source))
