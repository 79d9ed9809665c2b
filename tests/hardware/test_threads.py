"""Threads: as many as are asked for, one inside a block of short steps, and one for each part that is shared out."""

import threading

import pytest
import torch

from masil.hardware import Hardware, even_length, one_thread, remember, set_threads, share_out


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_threads_are_the_user_s_else_the_fastest(monkeypatch):
    remember(Hardware("cpu", {"cpu": "bfloat16"}, threads=1))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    set_threads()
    assert torch.get_num_threads() == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    set_threads()
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(("short", "inside"), [(True, 1), (False, 2)])
def test_short_steps_run_on_one_thread_and_leave_the_number_as_it_was(short, inside):
    with pytest.raises(KeyError), one_thread(short):
        assert torch.get_num_threads() == inside
        raise KeyError
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [1, 2, 9])
def test_parts_are_shared_out_in_order_each_on_one_thread_without_gradients(threads):
    names = set()

    def work(part):
        names.add(threading.current_thread().name)
        return part, torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    assert share_out(work, range(20), threads) == [(part, 1, False, False) for part in range(20)]
    assert len(names) <= threads
    assert (threading.current_thread().name in names) == (threads == 1)
    with torch.inference_mode():
        assert share_out(work, range(3), threads) == [(part, 1, False, True) for part in range(3)]
    assert torch.get_num_threads() == 2


def test_what_goes_wrong_in_a_part_is_raised():
    with pytest.raises(ZeroDivisionError):
        share_out(lambda part: 1 // part, [1, 0, 2], 2)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("n", [0, 1, 7, 8, 63, 64, 100, 255, 256, 257, 1000])
def test_parts_are_as_many_as_threads_share_evenly_and_neither_too_long_nor_too_short(n):
    length = even_length(n, most=64, fewest=16)
    parts = [min(length, n - start) for start in range(0, n, length)]
    assert sum(parts) == n
    assert all(1 <= part <= 64 for part in parts)
    assert max(parts, default=0) - min(parts, default=0) <= max(1, len(parts))
    if n >= 64:
        assert len(parts) % 4 == 0
    else:
        assert len(parts) == min(n, 1 + (n >= 32))
