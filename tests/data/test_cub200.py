from pathlib import Path

import pytest
import torch
from PIL import Image

from masil.data import Framing, load
from masil.data.cub200 import find_cub200, read_cub200
from masil.data.shots import standard_lists
from masil.errors import DataError

NONE = "500 of the 500 standard shots are not among the training images: draw shots instead."
CLASSES = ["001.Black_footed_Albatross", "002.Ani", "003.Chuck_will_Widow"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three birds; of each, images 0 to 2 are for training and 3 for the test."""
    folder = tmp_path / "CUB_200_2011"
    images, labels, splits = [], [], []
    for c, name in enumerate(CLASSES):
        (folder / "images" / name).mkdir(parents=True)
        for i in range(4):
            number = 4 * c + i + 1
            images.append(f"{number} {name}/bird {i}.jpg")
            labels.append(f"{number} {c + 1}")
            splits.append(f"{number} {int(i < 3)}")
            Image.new("RGB", (20, 10), (10 * number, 0, 0)).save(folder / "images" / name / f"bird {i}.jpg", "WEBP")
    write(folder / "images.txt", images)
    write(folder / "image_class_labels.txt", labels)
    write(folder / "train_test_split.txt", splits)
    write(folder / "classes.txt", [f"{c + 1} {name}" for c, name in enumerate(CLASSES)])
    return tmp_path


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def test_the_lists_say_what_is_what(root: Path) -> None:
    data = read_cub200(root)
    assert data.classes == ("Black footed Albatross", "Ani", "Chuck will Widow")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert data.test.labels.tolist() == [0, 1, 2]
    assert data.test.name(1) == "images/002.Ani/bird 3.jpg"
    assert data.train.load([8], Framing(8, 8))[0, 0].float().mean() == pytest.approx(110, abs=4)
    assert data.notes == (NONE,)
    assert data.shots is None


def test_a_missing_training_image_is_left_out_and_noted(root: Path) -> None:
    (root / "CUB_200_2011" / "images" / CLASSES[1] / "bird 0.jpg").unlink()
    data = read_cub200(root)
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert data.notes == ("1 of the 9 training images of CUB-200-2011 are not on disk and left out.", NONE)


def test_a_class_without_training_images_is_refused(root: Path) -> None:
    for i in range(3):
        (root / "CUB_200_2011" / "images" / CLASSES[1] / f"bird {i}.jpg").unlink()
    with pytest.raises(DataError, match=r"No training image of 'Ani' \(CUB-200-2011\) is on disk"):
        read_cub200(root)


def test_a_missing_test_image_is_refused(root: Path) -> None:
    (root / "CUB_200_2011" / "images" / CLASSES[1] / "bird 3.jpg").unlink()
    with pytest.raises(
        DataError, match=r"1 of the 3 test images of CUB-200-2011 are not on disk; the first is .*bird 3\.jp"
    ):
        read_cub200(root)


def test_standard_shots_are_found_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The photos themselves are not to be had here, so they are only said to be there."""
    shots = [image for images in standard_lists("cub200") for image in images]
    novel = list(dict.fromkeys(image.partition("/")[0] for image in shots))
    birds = [f"{number:03}.Bird_{number}" for number in range(1, 101)] + novel
    listed = [f"{bird}/{split}.jpg" for bird in birds for split in ("train", "test")] + shots
    folder = tmp_path / "CUB_200_2011"
    write(folder / "images.txt", [f"{n} {image}" for n, image in enumerate(listed)])
    write(folder / "image_class_labels.txt", [f"{n} {int(image[:3])}" for n, image in enumerate(listed)])
    write(folder / "train_test_split.txt", [f"{n} {int('test.jpg' not in image)}" for n, image in enumerate(listed)])
    write(folder / "classes.txt", [f"{int(bird[:3])} {bird}" for bird in birds])
    monkeypatch.setattr("masil.data.listed.on_disk", lambda root, files: set(files))
    data = read_cub200(tmp_path)
    assert data.notes == ()
    assert data.shots is not None
    for session, positions in data.shots.items():
        assert torch.bincount(data.train.labels[positions])[90 + 10 * session :].tolist() == [5] * 10
    missing = f"images/{shots[0]}"
    monkeypatch.setattr("masil.data.listed.on_disk", lambda root, files: set(files) - {missing})
    data = read_cub200(tmp_path)
    assert data.shots is None
    assert data.notes[1] == "1 of the 500 standard shots are not among the training images: draw shots instead."


@pytest.mark.parametrize("name", ["image_class_labels", "train_test_split"])
def test_lists_that_do_not_match_are_refused(root: Path, name: str) -> None:
    write(root / "CUB_200_2011" / f"{name}.txt", ["1 1"])
    with pytest.raises(DataError, match=r"Image 2 of .*images\.txt has no class or no split in the other lists"):
        read_cub200(root)


def test_a_line_or_a_list_that_cannot_be_read_is_named(root: Path) -> None:
    write(root / "CUB_200_2011" / "classes.txt", ["1 001.Auk", "2"])
    with pytest.raises(DataError, match=r"classes\.txt, line 2, should be a number and a value, but is '2'"):
        read_cub200(root)
    (root / "CUB_200_2011" / "classes.txt").unlink()
    with pytest.raises(DataError, match=r"classes\.txt, a list of CUB-200-2011, cannot be read"):
        read_cub200(root)


@pytest.mark.parametrize("download", [False, True])
def test_a_missing_data_set_is_said_with_where_and_how(tmp_path: Path, download: bool) -> None:
    assert find_cub200(tmp_path) is None
    sentence = (
        rf"CUB-200-2011 is not in {tmp_path}: looked for CUB_200_2011/images\.txt\..*get CUB_200_2011\.tgz from https"
    )
    with pytest.raises(DataError, match=sentence):
        load("cub200", tmp_path, download=download)


@pytest.mark.data
def test_the_official_data(data_folder: str) -> None:
    data = load("cub200", data_folder)
    assert (len(data.classes), data.classes[0], data.classes[199]) == (
        200,
        "Black footed Albatross",
        "Common Yellowthroat",
    )
    assert int((data.train.labels < 100).sum()) == 3000  # as many as the field's list of the base session has
    test = torch.bincount(data.test.labels, minlength=200)
    assert int(test[:100].sum()) == 2864
    assert test[100:].reshape(10, 10).sum(1).tolist() == [279, 287, 298, 300, 298, 288, 297, 295, 288, 300]
    assert list(data.shots) == list(range(1, 11))
    for session, positions in data.shots.items():
        counts = torch.bincount(data.train.labels[positions], minlength=200)
        first = 100 + 10 * (session - 1)
        assert counts.nonzero().flatten().tolist() == list(range(first, first + 10))
        assert counts[first : first + 10].tolist() == [5] * 10
    assert data.train.load([0, -1 + len(data.train)], Framing(256, 224)).float().std() > 10
