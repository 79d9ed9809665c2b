"""Engines: the same activations as PyTorch or none, from a graph that is traced once, and the faster of the two."""

import logging
import os

import pytest
import torch
from torch import nn

from masil.backbones import ModuleBackbone, create, engine_times, open_engine
from masil.data import Framing
from masil.errors import DeviceError, InputError, UnknownNameError

ONNX = {"engine": "onnxruntime", "device": "cpu"}
TORCH = {"engine": "torch", "device": "cpu"}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path))
    monkeypatch.delenv("MASIL_ENGINE", raising=False)
    return tmp_path / "onnx"


def graphs(cache):
    """Give the graphs that are kept; one that was written again has another inode."""
    return {(file.name, file.stat().st_ino) for file in cache.glob("*.onnx")}


def check_same(backbone, pixels, **choice):
    with torch.no_grad():
        expected = backbone(backbone.preprocess(pixels))
    rows = open_engine(backbone, size=pixels.shape[2], **choice).run(pixels)
    torch.testing.assert_close(rows, expected, atol=1e-5, rtol=1e-3)
    assert not rows.requires_grad


def test_pytorch_computes_in_evaluation_mode_and_float32_with_the_weights_it_was_opened_with(tiny, noise):
    backbone, pixels = tiny(), noise(5)
    check_same(backbone, pixels, **TORCH)
    engine = open_engine(backbone.half().train(), **TORCH)
    before = engine.run(pixels)
    assert before.dtype == torch.float32
    assert backbone.training
    with torch.no_grad():
        backbone.conv1.weight.mul_(3)
    assert torch.equal(engine.run(pixels), before)
    assert {weight.dtype for weight in backbone.parameters()} == {torch.float16}


@pytest.mark.parametrize("name", ["resnet12", "resnet18", "resnet18_cifar", "efficientnet_lite0"])
def test_every_architecture_agrees_with_pytorch(name, noise):
    backbone = create(name, width=0.25)
    for n in (1, 2, 3, 9):
        check_same(backbone, noise(n, 33, seed=n), **ONNX)
    assert not backbone.training


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_however_many_cores(monkeypatch, tiny, noise, cores):
    monkeypatch.setattr("masil.backbones.engine.usable_cores", lambda: cores)
    monkeypatch.setattr("masil.backbones.engine.PIXELS", 2 * 16 * 16)
    check_same(tiny(), noise(9), **ONNX)


def test_traced_once_per_weights_and_size(cache, tiny):
    open_engine(tiny(), **ONNX)
    first = graphs(cache)
    open_engine(tiny(), **ONNX)
    assert graphs(cache) == first
    open_engine(tiny(seed=1), **ONNX)
    assert open_engine(tiny(), size=24, **ONNX).size == 24
    assert len(graphs(cache)) == 3


@pytest.mark.parametrize("damage", ["cut short", "of other weights"])
def test_a_graph_that_is_not_the_backbone_s_is_traced_again(cache, tiny, noise, damage):
    open_engine(tiny(seed=5), **ONNX)
    (other,) = cache.glob("*.onnx")
    wrong = other.read_bytes()
    other.unlink()
    open_engine(tiny(), **ONNX)
    (file,) = cache.glob("*.onnx")
    file.write_bytes(wrong if damage == "of other weights" else file.read_bytes()[: len(wrong) // 2])
    check_same(tiny(), noise(9), **ONNX)
    assert file.read_bytes() != wrong
    assert abs(file.stat().st_size - len(wrong)) < 100


class FixedBatch(nn.Module):
    """Tracing turns the number of images into a constant."""

    def forward(self, x):
        return x.reshape(int(x.shape[0]), -1).abs() + torch.zeros(int(x.shape[0]), 1)


class NoSuchOperator(nn.Module):
    def forward(self, x):
        values: torch.Tensor = torch.linalg.svdvals(x.flatten(2))
        return values


class OnePlusIfTraced(nn.Module):
    def forward(self, x):
        return x.flatten(1).abs() + (1.0 if torch.jit.is_tracing() else 0.0)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (FixedBatch(), "it cannot compute the graph"),
        (NoSuchOperator(), r"its export to ONNX failed \(.*linalg_svdvals.*\)"),
        (OnePlusIfTraced(), r"its activations differ from PyTorch's by [\d.e-]+ of the largest"),
    ],
)
def test_what_onnx_runtime_cannot_do_is_refused_quietly(cache, capfd, caplog, module, sentence):
    backbone = ModuleBackbone(module, Framing(16, 16))
    with pytest.raises(DeviceError, match=f"'module:custom' cannot run on ONNX Runtime: {sentence}"):
        open_engine(backbone, **ONNX)
    with caplog.at_level(logging.WARNING):
        assert open_engine(backbone, device="cpu").name == "torch"
    assert "'module:custom' runs on PyTorch instead of ONNX Runtime: " in caplog.text
    assert capfd.readouterr().out == ""
    assert not graphs(cache)


def test_without_onnxruntime(monkeypatch, cache, tiny):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(DeviceError, match=r"cannot run on ONNX Runtime: it is not installed \(pip install onnxruntime"):
        open_engine(tiny(), **ONNX)
    assert open_engine(tiny(), device="cpu").name == "torch"


def test_a_cache_that_cannot_be_written_costs_only_time(monkeypatch, tmp_path, tiny, noise):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path / "file"))
    check_same(tiny(), noise(9), **ONNX)
    check_same(tiny(), noise(9), device="cpu")


def test_old_graphs_go(cache, tiny):
    cache.mkdir()
    for i in range(19):
        for suffix in ("onnx", "json"):
            (cache / f"{i}.{suffix}").touch()
            os.utime(cache / f"{i}.{suffix}", (i, i))
    open_engine(tiny(), **ONNX)
    kept = {path.name for path in cache.iterdir()}
    assert len(graphs(cache)) == 16
    assert {"0.onnx", "3.onnx", "0.json", "3.json"}.isdisjoint(kept)
    assert {"18.onnx", "18.json"} <= kept


# The faster of the two


@pytest.fixture
def timed(monkeypatch, cache):
    """Let the seconds of the next timings be these; each timing takes one."""
    seconds: list[dict[str, float]] = []
    monkeypatch.setattr("masil.backbones.engine.time_in_turn", lambda work, device: seconds.pop(0))
    return seconds


@pytest.mark.parametrize(("torch_seconds", "fastest"), [(2.0, "onnxruntime"), (0.95, "onnxruntime"), (0.5, "torch")])
def test_the_clearly_faster_engine_is_found_once(timed, tiny, torch_seconds, fastest):
    timed.append({"onnxruntime": 1.0, "torch": torch_seconds})
    assert open_engine(tiny(), device="cpu").name == fastest
    assert open_engine(tiny(), device="cpu").name == fastest  # no time is left to be asked for
    (times,) = engine_times()
    assert (times.backbone, times.size, times.fastest) == ("resnet20", 16, fastest)
    assert open_engine(tiny(), **ONNX).name == "onnxruntime"


def test_what_was_measured_elsewhere_or_is_damaged_is_measured_again(timed, tiny, cache, monkeypatch):
    timed += [{"onnxruntime": seconds, "torch": 1.0} for seconds in (2.0, 0.5, 2.0)]
    assert open_engine(tiny(), device="cpu").name == "torch"
    with monkeypatch.context() as patch:
        patch.setattr("masil.backbones.engine.machine_key", lambda: "another machine")
        assert engine_times() == []
        assert open_engine(tiny(), device="cpu").name == "onnxruntime"
    (file,) = cache.glob("*.json")
    file.write_text('{"seconds": {"torch": 0}}')
    assert engine_times() == []
    assert open_engine(tiny(), device="cpu").name == "torch"


def test_each_number_of_threads_has_times_of_its_own(timed, tiny, cache, monkeypatch):
    timed += [{"onnxruntime": 1.0, "torch": seconds} for seconds in (0.5, 2.0)]
    for _ in range(2):  # no time is left to be asked for in the second turn
        for threads, fastest in ((1, "torch"), (2, "onnxruntime")):
            monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
            assert open_engine(tiny(), device="cpu").name == fastest
    assert sorted(times.threads for times in engine_times()) == [1, 2]
    assert len(graphs(cache)) == 1
    for seed in range(1, 17):  # the graph goes at last, and its times with it
        open_engine(tiny(seed=seed), **ONNX)
    assert engine_times() == []


def test_a_graph_that_was_checked_here_is_not_checked_again_unless_it_has_changed(timed, tiny, cache, monkeypatch):
    timed.append({"onnxruntime": 1.0, "torch": 2.0})
    open_engine(tiny(), device="cpu")
    checked: list[str] = []
    monkeypatch.setattr("masil.backbones.engine.OnnxEngine.check", lambda *_: checked.append("again"))
    assert open_engine(tiny(), device="cpu").name == "onnxruntime"
    assert not checked
    (file,) = cache.glob("*.onnx")
    file.write_bytes(file.read_bytes() + b" ")
    open_engine(tiny(), device="cpu")
    assert checked == ["again"]


def test_the_engines_are_really_timed(cache, tiny):
    engine = open_engine(tiny(), device="cpu")
    (times,) = engine_times()
    assert engine.name == times.fastest
    assert min(times.seconds.values()) > 0


def test_a_variable_chooses_where_nobody_else_does(timed, tiny, monkeypatch):
    for name in ("torch", "onnxruntime"):
        monkeypatch.setenv("MASIL_ENGINE", name)
        assert open_engine(tiny(), device="cpu").name == name
        assert open_engine(tiny(), **ONNX).name == "onnxruntime"
    monkeypatch.setenv("MASIL_ENGINE", "tourch")
    with pytest.raises(UnknownNameError, match="no engine called 'tourch'; did you mean 'torch'"):
        open_engine(tiny(), device="cpu")


def test_other_devices_belong_to_pytorch(monkeypatch, tiny):
    monkeypatch.setattr("masil.backbones.engine.resolve_device", lambda _: torch.device("meta"))
    assert open_engine(tiny()).name == "torch"
    with pytest.raises(DeviceError, match="computes on the processor here, not on 'meta'; use engine='torch'"):
        open_engine(tiny(), engine="onnxruntime")


def test_names_and_pixels_that_are_none(tiny, noise):
    with pytest.raises(UnknownNameError, match="no engine called 'onnxruntim'; did you mean 'onnxruntime'"):
        open_engine(tiny(), engine="onnxruntim")
    for pixels in (noise(5) / 255, noise(5)[0], noise(5)[:, :1]):
        with pytest.raises(InputError, match=r"takes uint8 pixels of shape \[n 3 h w\], not torch\."):
            open_engine(tiny(), **TORCH).run(pixels)
    with pytest.raises(InputError, match=r"shape \[n 3 16 16\], not torch.uint8 of shape \[9, 3, 8, 8\]"):
        open_engine(tiny(), **ONNX).run(noise(9, 8))
