from pathlib import Path

import pytest
import torch

from masil.data import DATASETS
from masil.data.shots import has_standard_shots, standard_lists, standard_shots
from masil.data.wordnet import NAMES

SIZES = {"cifar100": (8, 25), "cub200": (10, 50), "miniimagenet": (8, 25)}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_the_lists_have_the_published_sizes_and_name_no_image_twice(name: str, size: tuple[int, int]) -> None:
    lists = standard_lists(name)
    assert [len(images) for images in lists] == [size[1]] * size[0]
    assert len({image for images in lists for image in images}) == size[0] * size[1]


def test_cifar_s_are_indices_into_the_training_array() -> None:
    assert all(0 <= int(image) < 50_000 for images in standard_lists("cifar100") for image in images)


def test_a_session_s_shots_are_five_of_each_of_its_classes() -> None:
    for number, images in enumerate(standard_lists("cub200")):
        birds = [int(image.partition(".")[0]) for image in images]
        assert birds == [101 + 10 * number + bird for bird in range(10) for _ in range(5)]
    wnids = list(NAMES)
    for number, images in enumerate(standard_lists("miniimagenet")):
        expected = [wnid for wnid in wnids[60 + 5 * number : 65 + 5 * number] for _ in range(5)]
        assert [image[:9] for image in images] == sorted(expected)


def test_data_sets_without_standard_shots_are_known() -> None:
    assert {name for name in DATASETS if has_standard_shots(name)} == set(SIZES)


def by_index(image: str) -> int | None:
    return int(image) if image.isdecimal() and int(image) < 50_000 else None


def test_positions_ascend_and_the_first_line_is_session_one(tmp_path: Path) -> None:
    shots, notes = standard_shots("cifar100", by_index, tmp_path)
    assert shots is not None
    assert list(shots) == list(range(1, 9))
    assert shots[1].tolist() == sorted(int(image) for image in standard_lists("cifar100")[0])
    assert shots[1].dtype == torch.int64
    assert notes == ()


def test_shots_that_are_not_there_are_counted(tmp_path: Path) -> None:
    last = max(int(image) for images in standard_lists("cifar100") for image in images)
    shots, notes = standard_shots("cifar100", lambda image: None if int(image) == last else int(image), tmp_path)
    assert shots is None
    assert notes == ("1 of the 200 standard shots are not among the training images: draw shots instead.",)


def test_lists_beside_the_data_are_not_used_and_said_to_differ(tmp_path: Path) -> None:
    own = standard_lists("cifar100")[0]
    (tmp_path / "session_2.txt").write_text("\r\n".join(reversed(own)) + "\r\n\r\n")  # the same in another order
    assert standard_shots("cifar100", by_index, tmp_path)[1] == ()
    (tmp_path / "session_2.txt").write_text("\n".join([*own[1:], "7"]))
    shots, notes = standard_shots("cifar100", by_index, tmp_path)
    assert shots is not None
    assert shots[1].tolist() == sorted(map(int, own))
    assert notes == (f"The lists of {tmp_path} differ from the field's standard shots, and are not used.",)
    (tmp_path / "session_2.txt").write_bytes(b"\xff\xfe\x00\x80")
    assert "differ from" in standard_shots("cifar100", by_index, tmp_path)[1][0]
