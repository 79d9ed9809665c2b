from pathlib import Path

import pytest
import torch
from PIL import Image

from masil.data import Framing, load
from masil.data.miniimagenet import find_miniimagenet, read_miniimagenet
from masil.data.shots import standard_lists
from masil.data.wordnet import NAMES
from masil.errors import DataError

LABELS = ["n01558993", "n01532829", "n00000001"]  # not sorted: the order of the list counts


def rows(split: str) -> list[tuple[str, str]]:
    numbers = range(3) if split == "train" else range(7, 9)
    return [(f"{label}{i:08d}.jpg", label) for label in LABELS for i in numbers]


def write_lists(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        lines = [f"{file},{label}" for file, label in rows(split)]
        (folder / f"{split}.csv").write_text("\n".join(["filename,label", *lines]) + "\n")


def write_images(folder: Path, flat: bool) -> None:
    for split in ("train", "test"):
        for number, (file, label) in enumerate(rows(split)):
            path = folder / "images" / file if flat else folder / split / label / file
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (12, 12), (20 * number, 0, 0)).save(path)


@pytest.fixture(params=["flat", "nested"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_images(tmp_path / "MINI-ImageNet", flat=request.param == "flat")
    write_lists(tmp_path / "index_list" / "mini_imagenet")
    return tmp_path


def test_both_layouts_give_the_same_images(root: Path) -> None:
    data = read_miniimagenet(root)
    assert data.classes == ("robin", "house finch", "n00000001")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert data.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.train.load([5], Framing(12, 12))[0, 0].float().mean() == pytest.approx(100, abs=3)
    assert data.shots is None
    assert data.notes == ("200 of the 200 standard shots are not among the training images: draw shots instead.",)


@pytest.mark.parametrize("place", ["mini-imagenet", "mini-imagenet/split"])
def test_the_lists_may_lie_with_the_images(tmp_path: Path, place: str) -> None:
    write_images(tmp_path / "mini-imagenet", flat=True)
    with pytest.raises(
        DataError, match=r"train\.csv and test\.csv, the lists of miniImageNet, are not there; looked in"
    ):
        read_miniimagenet(tmp_path)
    write_lists(tmp_path / place)
    assert len(read_miniimagenet(tmp_path).test) == 6


def test_a_missing_test_image_is_refused(root: Path) -> None:
    (next((root / "MINI-ImageNet").rglob("n0153282900000008.jpg"))).unlink()
    with pytest.raises(DataError, match=r"1 of the 6 test images of miniImageNet are not on disk"):
        read_miniimagenet(root)


def test_lists_that_cannot_be_read_are_named(root: Path) -> None:
    lists = root / "index_list" / "mini_imagenet"
    (lists / "test.csv").write_text("filename,label\nx.jpg,n09999999\n")
    with pytest.raises(DataError, match=r"test\.csv names the class 'n09999999', which train\.csv does not"):
        read_miniimagenet(root)
    (lists / "train.csv").write_text("file;class\nx.jpg;n1\n")
    with pytest.raises(DataError, match=r"train\.csv cannot be read as a list with the columns filename and label"):
        read_miniimagenet(root)


def test_a_missing_data_set_is_said(tmp_path: Path) -> None:
    assert find_miniimagenet(tmp_path) is None
    with pytest.raises(DataError, match=rf"miniImageNet is not in {tmp_path}: looked for MINI-ImageNet/train/ with"):
        load("miniimagenet", tmp_path)


@pytest.mark.parametrize("flat", [True, False])
def test_standard_shots_are_found_by_the_name_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flat: bool
) -> None:
    """The images themselves are not to be had, so they are only said to be there."""
    shots = [image for images in standard_lists("miniimagenet") for image in images]
    folder = tmp_path / "MINI-ImageNet"
    for split, more in (("train", shots), ("test", [])):
        (folder / ("images" if flat else split)).mkdir(parents=True, exist_ok=True)
        images = [f"{label}0000000{split}.jpg" for label in NAMES] + more
        (folder / f"{split}.csv").write_text("\n".join(["filename,label", *(f"{each},{each[:9]}" for each in images)]))
    monkeypatch.setattr("masil.data.listed.on_disk", lambda root, files: set(files))
    data = read_miniimagenet(tmp_path)
    assert data.classes == tuple(NAMES.values())
    assert data.notes == ()
    assert data.shots is not None
    assert list(data.shots) == list(range(1, 9))
    for session, positions in data.shots.items():
        assert torch.bincount(data.train.labels[positions])[55 + 5 * session :].tolist() == [5] * 5


@pytest.mark.data
def test_the_whole_data_set_where_it_is_there(data_folder: str) -> None:
    if find_miniimagenet(Path(data_folder)) is None:
        pytest.skip("miniImageNet is not in the folder that MASIL_DATA names")
    data = load("miniimagenet", data_folder)
    assert torch.bincount(data.train.labels).tolist() == [500] * 100
    assert torch.bincount(data.test.labels).tolist() == [100] * 100
    assert data.notes == ()
    assert [len(positions) for positions in data.shots.values()] == [25] * 8
