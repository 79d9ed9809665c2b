import warnings
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from masil.errors import InputError, UnknownNameError
from masil.training import Schedule

schedules = st.builds(
    Schedule,
    shape=st.sampled_from(["constant", "linear", "cosine"]),
    warmup=st.floats(0, 0.5),
    final=st.floats(0, 1),
    cycles=st.integers(1, 4),
    growth=st.floats(0.5, 3),
)


@given(schedules, st.integers(1, 300), st.data())
def test_the_rate_stays_between_zero_and_the_peak(schedule: Schedule, steps: int, data: st.DataObject) -> None:
    factor = schedule.factor(data.draw(st.integers(0, steps - 1)), steps)
    assert 0 <= factor <= 1 + 1e-12


def test_warm_up_rises_linearly_and_the_line_falls_to_the_end() -> None:
    schedule = Schedule(shape="linear", warmup=0.2)
    factors = [schedule.factor(step, 100) for step in range(100)]
    rises = [b - a for a, b in pairwise(factors[:20])]
    falls = [a - b for a, b in pairwise(factors[20:])]
    assert rises == pytest.approx([1 / 20] * 19)
    assert falls == pytest.approx([1 / 80] * 79)
    assert factors[-1] == pytest.approx(0.5 / 80)


def test_final_is_where_the_fall_ends() -> None:
    assert Schedule(shape="cosine", warmup=0.0, final=0.1).factor(10**6 - 1, 10**6) == pytest.approx(0.1)


def test_restarts_are_those_of_torch() -> None:
    schedule = Schedule(shape="cosine", warmup=0.0, cycles=3, growth=2.0)  # lengths 1 + 2 + 4
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own making: it is stepped without its optimiser
        reference = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimiser, T_0=1, T_mult=2)
        for step in range(70):
            reference.step((step + 0.5) / 10)
            assert schedule.factor(step, 70) == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-9)


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cosine'"):
        Schedule(shape="cosin")
    with pytest.raises(InputError, match=r"warm-up takes a share 1\.0"):
        Schedule(warmup=1.0)
    with pytest.raises(InputError, match=r"ends at 2"):
        Schedule(final=2)
    with pytest.raises(InputError, match="cycles >= 1"):
        Schedule(cycles=0)
