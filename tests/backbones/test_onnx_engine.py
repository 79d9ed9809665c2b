"""ONNX Runtime: the same activations as PyTorch or none, from a graph that is exported once."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from masil.backbones import ModuleBackbone, create, onnx_engine
from masil.backbones.onnx_engine import KEPT, open_onnx_engine
from masil.backbones.onnx_export import EngineRefusedError, export
from masil.data import Framing
from masil.errors import InputError

PIXELS = torch.randint(0, 256, (9, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path))
    return tmp_path / "onnx"


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes exported so far."""
    sizes: list[int] = []

    def counted(backbone, size: int) -> bytes:
        sizes.append(size)
        return export(backbone, size)

    monkeypatch.setattr(onnx_engine, "export", counted)
    return sizes


def tiny(**options: object):
    return create("resnet20", width=0.5, **options).requires_grad_(False)


@pytest.mark.parametrize("n", [1, 2, 3, 9])
@pytest.mark.parametrize("name", ["resnet12", "resnet18", "resnet18_cifar", "efficientnet_lite0"])
def test_every_architecture_agrees_with_pytorch(name: str, n: int) -> None:
    backbone = create(name, width=0.25).requires_grad_(False)
    pixels = torch.randint(0, 256, (n, 3, 33, 33), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))
    expected = backbone(backbone.preprocess(pixels))
    found = open_onnx_engine(backbone, 33).run(pixels)
    assert found.shape == expected.shape
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-4


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_however_many_cores(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(onnx_engine, "usable_cores", lambda: cores)
    monkeypatch.setattr(onnx_engine, "PIXELS", 2 * 16 * 16)
    backbone = tiny()
    engine = open_onnx_engine(backbone, 16)
    torch.testing.assert_close(engine.run(PIXELS), backbone(backbone.preprocess(PIXELS)), atol=1e-5, rtol=1e-4)


def test_exported_once_per_weights_and_size(cache: Path, exports: list[int]) -> None:
    open_onnx_engine(tiny(), 16)
    open_onnx_engine(tiny(), 16)
    assert exports == [16]
    open_onnx_engine(tiny(seed=1), 16)
    open_onnx_engine(tiny(), 24)
    assert exports == [16, 16, 24]
    assert len(list(cache.iterdir())) == 3


def test_a_damaged_graph_is_exported_again(cache: Path, exports: list[int]) -> None:
    open_onnx_engine(tiny(), 16)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    open_onnx_engine(tiny(), 16)
    assert exports == [16, 16]
    assert len(file.read_bytes()) == len(whole)


def test_a_graph_of_other_weights_is_found_out(cache: Path, exports: list[int]) -> None:
    open_onnx_engine(tiny(), 16)
    (file,) = cache.iterdir()
    file.write_bytes(export(tiny(seed=5), 16))
    backbone = tiny()
    engine = open_onnx_engine(backbone, 16)
    torch.testing.assert_close(engine.run(PIXELS), backbone(backbone.preprocess(PIXELS)), atol=1e-5, rtol=1e-4)


def test_activations_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(onnx_engine, "export", lambda _, size: export(tiny(seed=5), size))
    with pytest.raises(EngineRefusedError, match=r"its activations differ from PyTorch's by [\d.e-]+ of the largest"):
        open_onnx_engine(tiny(), 16)
    assert not cache.exists()


class FixedBatch(nn.Module):
    """Tracing turns the number of images into a constant."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(int(x.shape[0]), -1).abs() + torch.zeros(int(x.shape[0]), 1)


class NoSuchOperator(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = torch.linalg.svdvals(x.flatten(2))
        return values


def test_a_graph_for_one_number_of_images_only_is_refused() -> None:
    backbone = ModuleBackbone(FixedBatch(), Framing(16, 16))
    with pytest.raises(EngineRefusedError, match="it cannot compute the graph"):
        open_onnx_engine(backbone, 16)


def test_what_cannot_be_exported_is_refused_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineRefusedError, match=r"export to ONNX failed \(.*linalg_svdvals.*\)"):
        open_onnx_engine(ModuleBackbone(NoSuchOperator(), Framing(16, 16)), 16)
    assert capfd.readouterr().out == ""


def test_exporting_leaves_the_mode_alone() -> None:
    backbone = tiny()
    export(backbone, 16)
    assert not backbone.training


def test_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_engine.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EngineRefusedError, match="not installed \\(pip install onnxruntime\\)"):
        open_onnx_engine(tiny(), 16)


def test_a_cache_that_cannot_be_written_costs_only_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path / "file"))
    assert open_onnx_engine(tiny(), 16).run(PIXELS).shape == (9, 32)


def test_old_graphs_go(cache: Path) -> None:
    cache.mkdir()
    for i in range(KEPT + 3):
        (cache / f"{i}.onnx").touch()
        os.utime(cache / f"{i}.onnx", (i, i))
    open_onnx_engine(tiny(), 16)
    kept = {path.name for path in cache.iterdir()}
    assert len(kept) == KEPT
    assert {"0.onnx", "3.onnx"}.isdisjoint(kept)
    assert f"{KEPT + 2}.onnx" in kept


def test_another_size_than_the_graphs() -> None:
    with pytest.raises(InputError, match=r"shape \[n 3 16 16\], not torch.uint8 of shape \[9, 3, 8, 8\]"):
        open_onnx_engine(tiny(), 16).run(PIXELS[:, :, :8, :8])
