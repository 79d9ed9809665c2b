import re
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from masil.backbones import create
from masil.benchmark import read_run
from masil.cli.bench import bench
from masil.data import DATASETS, ArrayImages, Dataset, Source
from masil.errors import InputError, UnknownNameError
from masil.hardware import Hardware, remember
from masil.methods import METHODS, DCosine
from masil.protocol import PROTOCOLS, Protocol
from masil.training import save_weights


def squares(_root: Path) -> Dataset:
    labels = torch.arange(8).repeat(4)
    pixels = np.random.default_rng(0).integers(0, 256, (32, 3, 16, 16), dtype=np.uint8)
    return Dataset("squares", tuple("abcdefgh"), ArrayImages(pixels, labels), ArrayImages(pixels, labels))


@pytest.fixture(autouse=True)
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    remember(Hardware("cpu", {"cpu": "float32"}))
    shape = Protocol("squares", "squares", base_classes=4, sessions=2, way=2, shot=3)
    monkeypatch.setitem(PROTOCOLS, "squares", shape)
    monkeypatch.setitem(DATASETS, "squares", Source(lambda root: root, squares))
    monkeypatch.setattr("masil.report.write_report", lambda _, folder: folder / "report.html")  # takes seconds
    save_weights(create("resnet20"), tmp_path / "weights.safetensors")
    return ["--protocol", "squares", "--backbone", "resnet20", "--weights", "weights.safetensors", "--jobs", "1"]


def masil(*arguments: str, code: int = 0) -> str:
    app = typer.Typer()
    app.command()(bench)
    done = CliRunner().invoke(app, ["--out", "out", *arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_a_grid_is_a_line_a_method_and_failures_are_said(options: list[str], tmp_path: Path, monkeypatch) -> None:
    def broken(**_: int) -> DCosine:
        raise RuntimeError("the moon is full")

    monkeypatch.setitem(METHODS, "broken", broken)
    said = masil(*options, "--methods", "d-cosine, broken", "--draws", "2", code=1)
    assert "squares on resnet20, 2-way 3-shot, %" in said
    assert re.search(r"│ d-cosine │ +2 │ +\d+\.\d\d ± \d+\.\d\d │", said)
    assert "broken, draw 0: failed: RuntimeError: the moon is full" in said
    assert "The same command tries the failed cells again and no other." in said
    assert [draw.draw for draw in read_run(tmp_path / "out" / "d-cosine").draws] == [0, 1]
    assert "The records and the report are in out: out/report.html" in said


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--methods", "d-cosine,teem"], "There is no method called 'teem'; did you mean 'teen'?"),
        (["--protocol", "cifar10"], "There is no protocol called 'cifar10'; did you mean 'cifar100'?"),
        (["--backbone", "resnet21"], "There is no backbone called 'resnet21'; did you mean 'resnet20'?"),
        (["--standard"], "The field has no standard shots of 'squares'; play draws of them with --draws."),
        (["--draws", "2", "--standard"], "--draws 2 and --standard name different shots"),
        (["--methods", ","], "A benchmark needs at least one method."),
        (["--jobs", "0"], "0 jobs were asked for; give at least 1."),
    ],
)
def test_bad_input_is_a_sentence(options: list[str], more: list[str], sentence: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=re.escape(sentence)):
        masil(*options, *more)
