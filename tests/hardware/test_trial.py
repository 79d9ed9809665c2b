import json

import pytest
import torch

from masil.hardware import frozen, trial, workload
from masil.hardware.child import START


@pytest.fixture
def lines(capsys):
    """Give a function that runs a trial in this process and gives what it says."""

    def run(*arguments):
        before = torch.get_num_threads()
        try:
            trial.main(list(arguments))
        finally:
            torch.set_num_threads(before)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def quick(monkeypatch):
    """Let the work take no time and the machine be idle."""
    monkeypatch.setattr("masil.hardware.machine.load", lambda: 0.0)
    monkeypatch.setattr(workload, "matrix_product", lambda device, dtype: 2.0)
    monkeypatch.setattr(workload, "convolution", lambda device, dtype: 3.0)
    monkeypatch.setattr(workload, "training_step", lambda device, dtype, compiled=False: (lambda: None, 16))
    monkeypatch.setattr(workload, "best_seconds", lambda work, device, budget=0.1: 0.5)


def test_each_stage_is_begun_before_it_is_answered_and_the_deadly_ones_come_last(lines, quick):
    said = lines("train", "cpu")
    assert said[0].items() >= {"stage": START, "torch": torch.__version__}.items()
    assert said[-1] == {"done": True}
    stages = [f"float32 {name}" for name in ("matrix product", "convolution", "training")]
    stages = ["threads", *stages, *(stage.replace("float32", "bfloat16") for stage in stages)]
    assert [line["begin"] for line in said[1:-1:2]] == [line["stage"] for line in said[2:-1:2]] == stages
    assert said[2]["fastest"] >= 1
    assert said[4]["GFLOP/s"] == 2.0
    assert said[8]["images/s"] == 32.0


def test_a_stage_that_raises_says_so_in_a_line_and_the_next_one_follows(lines, quick, monkeypatch):
    def wrong(device, dtype):
        raise workload.WrongNumbersError("wrong numbers: y\nand more")

    monkeypatch.setattr(workload, "matrix_product", wrong)
    said = lines("train", "cpu")
    assert said[4] == {"stage": "float32 matrix product", "error": "WrongNumbersError: wrong numbers: y"}
    assert said[6]["stage"] == "float32 convolution"


def test_the_faster_number_of_threads_is_kept(lines, quick, monkeypatch):
    monkeypatch.setattr("masil.hardware.machine.usable_cores", lambda: 64)
    monkeypatch.setattr(workload, "best_seconds", lambda work, device, budget=0.1: float(torch.get_num_threads()))
    physical = torch.get_num_threads()
    assert lines("train", "cpu")[2]["fastest"] == physical
    monkeypatch.setattr(workload, "best_seconds", lambda work, device, budget=0.1: 1.0 / torch.get_num_threads())
    assert lines("train", "cpu")[2]["fastest"] == 64


def test_a_container_s_quota_holds_for_what_is_measured(lines, quick, monkeypatch):
    seen = []
    monkeypatch.setattr("masil.hardware.machine.usable_cores", lambda: 1)
    monkeypatch.setattr(workload, "convolution", lambda device, dtype: seen.append(torch.get_num_threads()) or 1.0)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert lines("train", "cpu")[2]["fastest"] == 1
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1]


@pytest.mark.parametrize("arguments", [("train", "cpu"), ("compile", "cpu", "float32"), ("engine",)])
@pytest.mark.parametrize(("load", "one_thread"), [(0.1, False), (3.0, True)])
def test_a_busy_machine_is_measured_on_one_thread(lines, quick, monkeypatch, arguments, load, one_thread):
    seen = set()

    def note(*_, **__):
        seen.add(torch.get_num_threads())
        return 1.0

    monkeypatch.setattr("masil.hardware.machine.load", lambda: load)
    monkeypatch.setattr("masil.hardware.machine.usable_cores", lambda: 64)
    monkeypatch.setattr(workload, "best_seconds", note)
    monkeypatch.setattr(frozen.FrozenNet, "torch_speed", note)
    monkeypatch.setattr(frozen.FrozenNet, "onnxruntime_speed", note)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        said = lines(*arguments)
    finally:
        torch.set_num_threads(before)
    assert (seen == {1}) == one_thread
    if arguments[0] == "train" and one_thread:
        assert said[2]["fastest"] == 3


def test_compiling_is_timed_against_the_eager_step(lines, quick):
    said = lines("compile", "cpu", "float32")
    assert said[2] == {"stage": "eager step", "ms": 500.0}
    assert said[4].items() >= {"stage": "compiled step", "ms": 500.0}.items()
    assert said[-1] == {"done": True}


def test_an_engine_that_is_not_there_is_an_answer(lines, monkeypatch):
    def missing(self):
        raise ModuleNotFoundError("No module named 'onnxruntime'")

    monkeypatch.setattr(frozen.FrozenNet, "torch_speed", lambda self: 5.0)
    monkeypatch.setattr(frozen.FrozenNet, "onnxruntime_speed", missing)
    said = lines("engine")
    assert said[2] == {"stage": "torch inference", "images/s": 5.0}
    assert said[4]["error"] == "ModuleNotFoundError: No module named 'onnxruntime'"
