from pathlib import Path

import pytest
import torch

from masil.data.shots import read_shots
from masil.errors import DataError

LABELS = torch.arange(12) // 2  # six classes of two images


def find(entry: str) -> int | None:
    number = entry.removeprefix("img")
    return int(number) if number.isdecimal() and int(number) < len(LABELS) else None


def write(folder: Path, **lists: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in lists.items():
        (folder / f"{name}.txt").write_text(content)
    return folder


def test_the_second_list_is_session_one_and_the_order_of_a_list_means_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path, session_1="img0\nimg1\nimg3\nimg2\n", session_2="img7\r\n\r\nimg4\r\n", session_3="img9")
    shots = read_shots(folder, find, LABELS)
    assert {number: positions.tolist() for number, positions in shots.items()} == {1: [4, 7], 2: [9]}


def test_sessions_sort_by_number(tmp_path: Path) -> None:
    labels = torch.arange(12)
    folder = write(tmp_path, **{f"session_{i}": f"img{i - 1}" for i in range(1, 13)})
    shots = read_shots(folder, find, labels)
    assert list(shots) == list(range(1, 12))
    assert [int(positions) for positions in shots.values()] == list(range(1, 12))


def test_without_lists_there_are_no_standard_shots(tmp_path: Path) -> None:
    assert read_shots(tmp_path / "none", find, LABELS) is None
    assert read_shots(write(tmp_path, session_1="\n".join(f"img{i}" for i in range(12))), find, LABELS) is None


def test_an_image_that_is_not_there_is_named_with_its_list_and_line(tmp_path: Path) -> None:
    folder = write(tmp_path, session_2="img4\n\nimg99\n")
    with pytest.raises(
        DataError, match=r"session_2\.txt, line 3, names the image 'img99', which is not among the trai"
    ):
        read_shots(folder, find, LABELS)


def test_an_image_named_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"session_2\.txt, line 2, names the image 'img4' again, after line 1"):
        read_shots(write(tmp_path, session_2="img4\nimg4\n"), find, LABELS)


def test_a_class_that_returns_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, session_2="img4", session_3="img5")
    with pytest.raises(DataError, match=r"session_3\.txt holds images of class 2, as .*session_2\.txt does"):
        read_shots(folder, find, LABELS)


def test_a_base_list_that_leaves_images_out_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, session_1="img0\nimg1\nimg2", session_2="img4")
    with pytest.raises(DataError, match=r"session_1\.txt leaves out 1 of the training images of its classes"):
        read_shots(folder, find, LABELS)


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has session_4\.txt but not session_3\.txt"):
        read_shots(write(tmp_path, session_2="img4", session_4="img6"), find, LABELS)


def test_a_list_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "session_2.txt").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(DataError, match=r"session_2\.txt cannot be read as a list of images"):
        read_shots(tmp_path, find, LABELS)
