from pathlib import Path

import pytest
import torch
from PIL import Image

from masil.data import Framing, load
from masil.data.omniglot import find_omniglot, read_omniglot
from masil.errors import DataError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for place in ("images_background/Greek/character02", "images_background/Greek/character01",
                  "images_background/Old_Church/character01", "images_evaluation/Angelic/character01"):  # fmt: skip
        folder = tmp_path / "omniglot" / place
        folder.mkdir(parents=True)
        for i in range(1, 21):
            Image.new("1", (5, 5), i % 2).save(folder / f"0001_{i:02d}.png")
    return tmp_path


def test_the_first_fifteen_people_are_for_training(root: Path) -> None:
    data = read_omniglot(root, characters=4)
    assert data.classes == (
        "Greek/character01", "Greek/character02", "Old Church/character01", "Angelic/character01",
    )  # fmt: skip
    assert torch.bincount(data.train.labels).tolist() == [15] * 4
    assert torch.bincount(data.test.labels).tolist() == [5] * 4
    assert data.train.name(14).endswith("Greek/character01/0001_15.png")
    assert data.test.name(0).endswith("Greek/character01/0001_16.png")
    assert data.train.load([0, 1], Framing(4, 4))[:, 0, 0, 0].tolist() == [255, 0]


def test_a_copy_that_is_not_whole_is_refused(root: Path) -> None:
    with pytest.raises(DataError, match="omniglot holds 4 characters instead of 1,623; unpack it again"):
        read_omniglot(root)
    (root / "omniglot" / "images_evaluation" / "Angelic" / "character01" / "0001_07.png").unlink()
    with pytest.raises(DataError, match="Angelic/character01 holds 19 drawings instead of 20"):
        read_omniglot(root, characters=4)


def test_a_missing_data_set_is_said(tmp_path: Path) -> None:
    assert find_omniglot(tmp_path) is None
    with pytest.raises(
        DataError, match=rf"Omniglot is not in {tmp_path}: looked for omniglot/images_background/, omniglo"
    ):
        load("omniglot", tmp_path)


@pytest.mark.data
def test_the_official_data(data_folder: str) -> None:
    data = load("omniglot", data_folder)
    assert len(data.classes) == len(set(data.classes)) == 1623
    assert torch.bincount(data.train.labels).tolist() == [15] * 1623
    assert torch.bincount(data.test.labels).tolist() == [5] * 1623
    assert data.train.name(964 * 15).startswith("images_evaluation/Angelic/")
    assert data.train.load([0, 1000], Framing(105, 105)).unique().tolist() == [0, 255]
