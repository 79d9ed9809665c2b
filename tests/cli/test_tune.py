"""`masil tune` on the embedded characters and on a folder of photos."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from masil.cli.app import app


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for name in "abcdef":
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        colour = random.integers(0, 256, 3)
        for i in range(9):
            noise = random.integers(-30, 30, (40, 40, 3))
            Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "photos"


def test_a_folder_of_photos_is_tuned_for(photos: Path) -> None:
    result = CliRunner().invoke(app, ["tune", str(photos), "--shots", "3", "--plays", "1", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["chosen"]) == {"shrinkage", "concepts", "alpha", "bias"}
    means = [trial["harmonic_mean"] for trial in found["trials"]]
    assert means == sorted(means, reverse=True)
    assert len(means) == 30
    table = CliRunner().invoke(app, ["tune", str(photos), "--shots", "3", "--plays", "1"])
    assert "Masil(shrinkage=" in table.stdout


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["tune", str(tmp_path / "nothing")])
    assert result.exit_code != 0
    assert "nothing" in str(result.exception)
