"""Which engine runs: the probe's choice, PyTorch where ONNX Runtime cannot, a refusal where it was asked for."""

import logging
from types import SimpleNamespace

import pytest
import torch

from masil.backbones import create, engines, onnx_engine, open_engine
from masil.errors import DeviceError, UnknownNameError


@pytest.fixture
def _fast_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that finds a processor, and ONNX Runtime faster on it."""
    monkeypatch.setattr(engines, "probe", lambda: SimpleNamespace(engine="onnxruntime"))
    monkeypatch.setattr(engines, "resolve_device", lambda _: torch.device("cpu"))


def tiny():
    return create("resnet20", width=0.5, framing=(16, 16))


@pytest.mark.usefixtures("_fast_processor")
def test_the_probe_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_engine(tiny()).name == "onnxruntime"
    monkeypatch.setattr(engines, "probe", lambda: SimpleNamespace(engine="torch"))
    assert open_engine(tiny()).name == "torch"
    assert open_engine(tiny(), engine="onnxruntime").name == "onnxruntime"


@pytest.mark.usefixtures("_fast_processor")
def test_the_backbones_size_unless_another_is_asked_for() -> None:
    assert open_engine(tiny()).size == 16
    assert open_engine(tiny(), size=20).size == 20


@pytest.mark.usefixtures("_fast_processor")
def test_other_devices_belong_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "resolve_device", lambda _: torch.device("meta"))
    assert open_engine(tiny()).name == "torch"
    with pytest.raises(DeviceError, match="computes on the processor here, not on 'meta'; use engine='torch'"):
        open_engine(tiny(), engine="onnxruntime")


@pytest.mark.usefixtures("_fast_processor")
def test_refused_by_onnxruntime(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(onnx_engine.importlib.util, "find_spec", lambda _: None)
    with caplog.at_level(logging.WARNING):
        assert open_engine(tiny()).name == "torch"
    assert "'resnet20' runs on PyTorch instead of ONNX Runtime: it is not installed" in caplog.text
    with pytest.raises(DeviceError, match="'resnet20' cannot run on ONNX Runtime: it is not installed"):
        open_engine(tiny(), engine="onnxruntime")


def test_names_that_are_none() -> None:
    with pytest.raises(UnknownNameError, match="no engine called 'onnxruntim'; did you mean 'onnxruntime'"):
        open_engine(tiny(), engine="onnxruntim")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="The device 'cuda' was asked for, but torch"):
        open_engine(tiny(), device="cuda")
