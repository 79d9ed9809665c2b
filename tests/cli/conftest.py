"""Tiny photos of coloured squares, a small backbone with random weights, and a model that knows six classes."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from masil.backbones import create
from masil.cli import app

PATTERNS = np.random.default_rng(99).integers(0, 255, (16, 4, 4, 3)).repeat(8, 1).repeat(8, 2)


def paint(folder, classes, n, seed=0):
    """Put n noisy photos of each class, a name and the number of its pattern, into folders."""
    draw = np.random.default_rng(seed)
    for name, pattern in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for place in range(n):
            noisy = PATTERNS[pattern] + draw.normal(0, 30, (32, 32, 3))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / name / f"{seed}-{place}.png")
    return folder


def run(*arguments, given=None):
    return CliRunner().invoke(app, [str(each) for each in arguments], input=given, catch_exceptions=False)


@pytest.fixture(scope="session", autouse=True)
def _no_probe():
    """Take the engine most machines have for granted instead of measuring for seconds which is faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASIL_ENGINE", "onnxruntime")
        yield


@pytest.fixture
def masil(monkeypatch):
    """Run a command, its output as a terminal's would be; a sentence of masil's is raised."""
    monkeypatch.setattr("masil.hardware.probe", lambda: None)
    return run


@pytest.fixture(scope="session")
def known():
    return {f"bird {letter}": at for at, letter in enumerate("abcdef")}


@pytest.fixture(scope="session")
def photos():
    return paint


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "resnet20.safetensors"
    save_file(create("resnet20", seed=1).state_dict(), file)
    return file


@pytest.fixture(scope="session")
def taught(tmp_path_factory, weights, known):
    """The model file; not to be changed, see `birds`."""
    place = tmp_path_factory.mktemp("birds")
    base = paint(place / "base", known, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("masil.hardware.probe", lambda: None)
        patch.setenv("MASIL_CACHE", str(place / "cache"))
        options = ("--backbone", "resnet20", "--weights", weights, "--concepts", 8, "--device", "cpu")
        done = run("fit", base, "-m", place / "birds.masil", *options)
    assert done.exit_code == 0, done.output
    return place / "birds.masil"


@pytest.fixture
def birds(taught, tmp_path):
    """A model file of the test's own."""
    return Path(shutil.copy(taught, tmp_path / "birds.masil"))
