"""Several processes train as one."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import distributed, nn

from masil.data import ArrayImages
from masil.errors import DeviceError, InputError
from masil.training import Average, Mixing, MuonSettings, Recipe, Sgd, train
from masil.training.checkpoint import FILE
from masil.training.distributed import SharedBatchNorm2d, World, joined, own_device, share_batch_norm

CPU = torch.device("cpu")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of one."""
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_shared_batch_norm_of_one_process_is_a_batch_norm() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, 4, 4, generator=draw, dtype=torch.float64)
    pull = torch.randn(x.shape, generator=draw, dtype=torch.float64)
    plain = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)).double()
    plain[1].weight.data.uniform_(0.5, 2, generator=draw)
    results = []
    for shared in (False, True):
        if shared:
            plain[1].reset_running_stats()
            share_batch_norm(plain, CPU)
            assert isinstance(plain[1], SharedBatchNorm2d)
        source = x.clone().requires_grad_()
        plain.zero_grad()
        y = plain(source)
        y.backward(pull)
        statistics = [buffer.clone() for buffer in plain[1].buffers()]
        gradients = [parameter.grad.clone() for parameter in plain.parameters() if parameter.grad is not None]
        results.append([y.detach(), source.grad, *gradients, *statistics])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    plain.eval()
    torch.testing.assert_close(plain(x), plain(x))


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
