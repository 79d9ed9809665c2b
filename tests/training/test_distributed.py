"""Several processes train as one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from masil.data import ArrayImages
from masil.errors import DeviceError, InputError
from masil.training import Average, Mixing, MuonSettings, Recipe, Sgd, Tuning, train
from masil.training.checkpoint import FILE
from masil.training.distributed import World, joined, own_device

CPU = torch.device("cpu")


def test_two_processes_end_where_one_does(
    patterns: Callable[..., ArrayImages],
    tiny: Callable[..., Recipe],
    command: Callable[..., list[str]],
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
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
    train(patterns(), recipe, one, device="cpu", precision="float32")
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


def test_a_batch_is_dealt_out_evenly() -> None:
    dealt = [list(range(12))[World(rank, 3).share(12)] for rank in range(3)]
    assert [row for rows in dealt for row in rows] == list(range(12))
    World(0, 3).check_batch(12)
    with pytest.raises(InputError, match="batch of 16 images cannot be shared evenly by 3 processes"):
        World(0, 3).check_batch(16)


def test_one_process_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined(CPU) as world:
        assert (world.rank, world.size, world.writes) == (0, 1, True)
        assert world.mean(torch.tensor(2.5)) == 2.5
        world.wait()


def test_half_a_launch_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(DeviceError, match="start all processes with torchrun"), joined(CPU):
        pass


def test_each_process_takes_its_own_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert own_device(torch.device("cuda")) == torch.device("cuda", 3)
    assert own_device(torch.device("cuda:1")) == torch.device("cuda:1")
    assert own_device(CPU) == CPU
