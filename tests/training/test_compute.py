import subprocess
import sys
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import load_file

from masil.errors import DeviceError, InputError, UnknownNameError
from masil.training import Average, Mixing, MuonSettings, Sgd, TrainOptions, Tuning, train
from masil.training.compute import (
    TIMED,
    WARM,
    ComputeSettings,
    ForwardChoice,
    World,
    choose_settings,
    joined,
    long_sizes,
    own_device,
)
from masil.training.trained import FILE

CPU = torch.device("cpu")


@pytest.fixture
def asked(monkeypatch):
    """What the hardware was asked, which here answers at once: bfloat16."""
    questions: list[str] = []
    answers = {"probe": None, "found_precision": "bfloat16", "set_threads": 1}

    def ask(name):
        return lambda *_: questions.append(name) or answers[name]  # type: ignore[func-returns-value]

    for name in answers:
        monkeypatch.setattr(f"masil.training.compute.{name}", ask(name))
    return questions


def test_the_hardware_decides_unless_a_precision_is_given_and_several_processes_do_not_compile(asked):
    engine = choose_settings(CPU, "float32", False, World())
    assert (engine.precision, engine.compile, engine.cast) == ("float32", False, None)
    assert asked == []
    assert not choose_settings(CPU, "auto", True, World(0, 2)).compile
    assert "set_threads" not in asked
    engine = choose_settings(CPU, "auto", True, World())
    assert (engine.device, engine.precision, engine.compile, engine.processes) == ("cpu", "bfloat16", True, 1)
    assert engine.cast == torch.bfloat16
    assert "set_threads" in asked
    with pytest.raises(UnknownNameError, match="no precision called 'bfloat61'; did you mean 'bfloat16'"):
        choose_settings(CPU, "bfloat61", False, World())


def test_a_size_that_comes_back_counts_as_one(tiny):
    assert long_sizes(tiny(stages=((2, 8), (1, 16), (2, 8))), 25) == {8}


def test_what_changed_since_a_checkpoint_is_said():
    engine = ComputeSettings("cpu", "float32", True, 2, 1, "2.13")
    assert engine.differences(asdict(engine)) == []
    assert engine.differences({**asdict(engine), "threads": 8}) == ["threads 8 then, 2 now"]


class Stub:
    """A backbone that says which way it was run."""

    def forward(self, x):
        return "eager"


@pytest.mark.parametrize(("eager", "compiled", "chosen"), [(1.0, 0.5, "compiled"), (0.5, 1.0, "eager")])
def test_real_steps_decide_whether_a_size_runs_compiled(eager, compiled, chosen):
    choice = ForwardChoice(Stub(), {16, 24})  # type: ignore[arg-type]
    choice.compiled = lambda x: "compiled"  # type: ignore[assignment,return-value]
    ran = []
    for step in range(2 * (WARM + TIMED) + 3):
        ran.append(choice.forward(16)(torch.zeros(1)))
        slow = 100.0 if step in (0, WARM + TIMED) else 0.0  # the first of a kind pays for compiling
        choice.note(16, slow + (compiled if ran[-1] == "compiled" else eager))
    assert ran[: 2 * (WARM + TIMED)] == ["eager"] * (WARM + TIMED) + ["compiled"] * (WARM + TIMED)
    assert ran[-3:] == [chosen] * 3
    assert choice.forward(24)(torch.zeros(1)) == "eager"  # another size is tried anew
    for _ in range(2 * (WARM + TIMED)):
        choice.note(32, 1.0)
    assert choice.forward(32)(torch.zeros(1)) == "eager"  # one that is not worth it stays as it is


def test_what_cannot_be_compiled_runs_as_it_is(caplog):
    def fails(x):
        raise RuntimeError("no compiler here")

    choice = ForwardChoice(Stub(), {16, 24})  # type: ignore[arg-type]
    choice.compiled = fails  # type: ignore[assignment]
    for _ in range(WARM + TIMED):
        choice.note(16, 1.0)
    assert [choice.forward(16)(torch.zeros(1)) for _ in range(2)] == ["eager", "eager"]
    assert "cannot be compiled here (RuntimeError)" in caplog.text


def test_two_processes_end_where_one_does(patterns, tiny, command, environment, tmp_path):
    # A small rate and few steps: rounding grows with every step of a rough landscape, whoever takes it. It is 1e-4 at
    # the end, where weights have moved by up to 4e-2; gradients that are not shared end as far from one another.
    recipe = tiny(
        stages=((1, 8), (1, 16)),
        sgd=Sgd(lr=0.005),
        muon=MuonSettings(lr=0.005),
        mixing=Mixing(mixup=0.5, cutmix=0.5),
        average=Average("ema", decay=0.5),
        tuning=Tuning(freeze_batch_norm=True),  # on processors each process has its own otherwise
    )
    one, two = tmp_path / "one", tmp_path / "two"
    train(patterns(), recipe, one, device="cpu", options=TrainOptions(precision="float32"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    launch += command(patterns(), recipe, two)
    done = subprocess.run(launch, env=environment, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("epoch 1/2") == 1  # one of the two speaks
    expected, found = load_file(one / FILE), load_file(two / FILE)
    assert expected.keys() == found.keys()
    # Rounding alone makes 0.00012 on some builds of torch, a mixup of 0.4 instead of 0.5 twenty times as much.
    for name, value in expected.items():
        if name.startswith(("network.", "average.")):
            torch.testing.assert_close(
                found[name], value, rtol=1e-3, atol=1e-3, msg=lambda said, at=name: f"{at}: {said}"
            )


def test_a_batch_is_dealt_out_evenly():
    dealt = [list(range(12))[World(rank, 3).share(12)] for rank in range(3)]
    assert [row for rows in dealt for row in rows] == list(range(12))
    with pytest.raises(InputError, match="batch of 16 images cannot be shared evenly by 3 processes"):
        World(0, 3).share(16)


def test_one_process_needs_no_group_and_half_a_launch_is_said(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined(CPU) as world:
        assert (world.rank, world.size, world.writes) == (0, 1, True)
        assert world.mean(torch.tensor(2.5)) == 2.5
        world.wait()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(DeviceError, match="start all processes with torchrun"), joined(CPU):
        pass


def test_each_process_takes_its_own_card(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert own_device(torch.device("cuda")) == torch.device("cuda", 3)
    assert own_device(torch.device("cuda:1")) == torch.device("cuda:1")
    assert own_device(CPU) == CPU
