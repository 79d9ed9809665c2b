import errno
import os
import shutil

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from masil.data import Framing, load, natural, read_folder, read_photos
from masil.data.photos import _split, alike, class_tree, listing
from masil.errors import DataError, InputError


def draw(file, seed):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(file)


def fill(root, **counts):
    for c, (name, count) in enumerate(counts.items()):
        for i in range(count):
            draw(root / name.replace("__", "/") / f"{i}.png", 1000 * c + i)
    return root


def names(images):
    return [images.name(i) for i in range(len(images))]


def test_one_tree_is_split_class_by_class(tmp_path):
    data = read_folder(fill(tmp_path / "pets", dog=10, cat=3, class10=5, class9=2))
    assert data.name == "pets"
    assert data.classes == ("cat", "class9", "class10", "dog")
    assert torch.bincount(data.test.labels).tolist() == [1, 1, 1, 2]
    assert torch.bincount(data.train.labels).tolist() == [2, 1, 4, 8]
    assert not set(names(data.train)) & set(names(data.test))
    assert data.train.load(slice(None), Framing(8, 8)).shape == (15, 3, 8, 8)
    assert data.notes == ()
    assert data.shots is None


def test_the_split_is_seeded_and_a_class_knows_nothing_of_the_others(tmp_path):
    def test_files(seed):
        return set(names(read_folder(tmp_path, seed=seed).test))

    fill(tmp_path, dog=30)
    first = test_files(0)
    assert first == test_files(0)
    assert first != test_files(1)
    fill(tmp_path, dog=30, cat=4)
    assert first <= test_files(0)


tree = st.lists(st.integers(0, 999), min_size=1, max_size=60, unique=True).map(
    lambda numbers: {"a": [f"a/{n}.png" for n in sorted(numbers)]}
)


@given(tree, st.floats(0.01, 0.99), st.integers(0, 2**32))
@settings(max_examples=80)
def test_every_image_is_in_one_part_and_no_part_takes_all(files, share, seed):
    parts = _split(files, share, seed)
    n, train, test = len(files["a"]), parts["train"]["a"], parts["test"]["a"]
    assert sorted(train + test) == sorted(files["a"])
    assert len(test) == min(n - 1, max(1, round(share * n)))
    assert [file for file in files["a"] if file in set(train)] == train
    grown = _split({"a": [*files["a"], "a/new.png"]}, share, seed)["test"]["a"]
    assert len(set(test) - set(grown)) <= 1


def test_train_and_test_folders_are_kept_apart(tmp_path):
    fill(tmp_path, Train__dog=3, Train__cat=2, test__cat=1, test__dog=4, val__dog=1)
    data = read_folder(tmp_path)
    assert data.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert data.test.labels.tolist() == [0, 1, 1, 1, 1]
    assert data.train.name(0) == "Train/cat/0.png"
    assert data.notes == ("1 folder beside train/ and test/ left out: val.",)


def test_a_class_without_test_images_is_noted_and_one_without_training_images_refused(tmp_path):
    fill(tmp_path / "a", train__cat=2, train__dog=2, test__cat=1)
    assert any("There is no image to test on for 1 class: 'dog'." in note for note in read_folder(tmp_path / "a").notes)
    fill(tmp_path / "b", train__cat=2, test__cat=1, test__dog=1, test__eel=1)
    with pytest.raises(DataError, match="no image to train on for 2 classes: 'dog', 'eel'; add some"):
        read_folder(tmp_path / "b")
    alone = read_folder(fill(tmp_path / "c", cat=1, dog=5))  # a class of one image keeps it for training
    assert alone.notes == ("There is no image to test on for 1 class: 'cat'.",)


def test_all_bad_files_are_named_at_once_or_left_out(tmp_path):
    fill(tmp_path, cat=5, dog=5)
    half = (tmp_path / "cat" / "1.png").read_bytes()[:80]
    (tmp_path / "cat" / "1.png").write_bytes(half)
    (tmp_path / "dog" / "notes.txt").write_text("they bark")
    (tmp_path / "dog" / "empty.jpg").write_bytes(b"")
    (tmp_path / "dog" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    os.mkfifo(tmp_path / "cat" / "pipe")
    sentences = [
        r"cat/1\.png is damaged or cut short", r"dog/notes\.txt is not an image of a kind", r"dog/empty\.jpg is empty",
        r"dog/gone\.png is a link that leads nowhere", r"cat/pipe is not a regular file",
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"^5 files of 14 in .* cannot be used:\n") as caught:
        read_folder(tmp_path)
    for sentence in sentences:
        assert caught.match(sentence)
    assert caught.match("Repair or remove them, or have them left out: by --skip-bad of fit, learn and")
    data = read_folder(tmp_path, skip_bad=True)
    assert len(data.train) + len(data.test) == 9
    assert len(data.notes) == 1
    assert data.notes[0].startswith("5 files of 14 in ")
    assert "empty.jpg is empty" in data.notes[0]
    assert len(load(tmp_path, skip_bad=True).train) == len(data.train)


@pytest.mark.parametrize("read", [read_folder, read_photos])
def test_a_class_that_is_empty_or_has_nothing_but_bad_files_is_refused(tmp_path, read):
    fill(tmp_path, cat=5)
    (tmp_path / "dog" / "puppies").mkdir(parents=True)
    with pytest.raises(DataError, match="no image to train on for 1 class: 'dog'"):
        read(tmp_path)
    (tmp_path / "dog" / "1.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="no image to train on for 1 class: 'dog'"):
        read(tmp_path, skip_bad=True)


def test_folders_that_hold_no_data_set_are_refused(tmp_path):
    with pytest.raises(DataError, match=f"^There is no folder {tmp_path}/none"):
        read_folder(tmp_path / "none")
    with pytest.raises(DataError, match="is empty; it should hold a folder of images for each class"):
        read_folder(tmp_path)
    draw(tmp_path / "1.png", 0)
    with pytest.raises(DataError, match=r"1\.png is a file, not a folder of images"):
        read_folder(tmp_path / "1.png")
    with pytest.raises(DataError, match="holds no folder; put the images of each class in a folder"):
        read_folder(tmp_path)


@pytest.mark.parametrize("folders", [("train",), ("train", "val"), ("test",)])
def test_half_a_split_is_refused(tmp_path, folders):
    for folder in folders:
        fill(tmp_path, **{f"{folder}__cat": 2})
    with pytest.raises(DataError, match=rf"holds {', '.join(folders)}, but not both train and test"):
        read_folder(tmp_path)
    assert read_folder(fill(tmp_path / "trams", train=3, tram=3)).classes == ("train", "tram")


@pytest.mark.parametrize(("one", "other"), [("Cat", "cat"), ("caf\u00e9", "cafe\u0301")])
@pytest.mark.parametrize("split", [False, True])
def test_classes_that_look_the_same_are_refused(tmp_path, one, other, split):
    fill(tmp_path, **{f"train__{one}" if split else one: 3, f"test__{other}" if split else other: 3})
    if len(list(tmp_path.iterdir())) < 2:
        pytest.skip("this file system takes the two names for one")
    with pytest.raises(DataError, match=r"The folders '.+' and '.+' of .* differ only in case, or in how an"):
        read_folder(tmp_path)


def test_what_lies_beside_the_classes_and_copies_across_the_split_are_noted(tmp_path):
    fill(tmp_path, train__cat=2, train__dog=3, test__cat=1, test__dog=1)
    shutil.copy(tmp_path / "train" / "dog" / "0.png", tmp_path / "test" / "cat" / "copy.png")
    (tmp_path / "README.md").write_text("pets")
    notes = read_folder(tmp_path).notes
    assert notes[0].endswith("left out: README.md.")
    assert notes[1] == "1 test image equal to a training image: test/cat/copy.png = train/dog/0.png."


def test_order_and_split_do_not_depend_on_the_order_of_the_file_system(tmp_path, monkeypatch):
    fill(tmp_path, b=7, a=7)
    scandir = os.scandir

    class Backwards:
        def __init__(self, folder):
            with scandir(folder) as found:
                self.entries = sorted(found, key=lambda entry: entry.name, reverse=True)

        def __enter__(self):
            return self.entries

        def __exit__(self, *_): ...

    def listed(data):
        return [*data.classes, *names(data.train), *names(data.test)]

    before = listed(read_folder(tmp_path))
    monkeypatch.setattr(os, "scandir", Backwards)
    assert listed(read_folder(tmp_path)) == before


@pytest.mark.parametrize("share", [0, 1, -0.1, 2])
def test_the_share_of_test_images_is_a_share(tmp_path, share):
    with pytest.raises(InputError, match=f"The share of test images is {share}; it must lie between 0 and 1"):
        read_folder(tmp_path, test_share=share)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12)))
def test_any_folder_name_is_a_class_name(tmp_path, odd):
    root = tmp_path / "odd"
    shutil.rmtree(root, ignore_errors=True)
    named = [n for n in dict.fromkeys(odd) if not n.startswith(".") and n.casefold() != "__macosx"]
    kept = [n for n in named if len(n.encode()) < 200]
    kept = [n for n in kept if n not in {m for group in alike(kept) for m in group}]
    for i, name in enumerate([*kept, "plain"]):
        draw(root / name / "1.png", i)
    assert len(read_folder(root).classes) == len({*kept, "plain"})


def test_all_photos_of_a_folder_are_read_each_once(tmp_path):
    fill(tmp_path, wren=3, crow=12)
    shutil.copy(tmp_path / "crow" / "2.png", tmp_path / "crow" / "2 (copy).png")
    (tmp_path / "readme.txt").write_text("birds")
    (tmp_path / "wren" / "bad.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="1 file of 17 in .* cannot be used"):
        read_photos(tmp_path)
    photos = read_photos(tmp_path, skip_bad=True)
    assert photos.names == ("crow", "wren")
    assert photos.counts == {"crow": 12, "wren": 3}
    assert photos.labels == ["crow"] * 12 + ["wren"] * 3
    assert names(photos.images)[:4] == ["crow/0.png", "crow/1.png", "crow/10.png", "crow/11.png"]
    assert set(photos.left_out) == {"wren/bad.jpg", "crow/2.png"}
    assert photos.left_out["crow/2.png"] == f"{tmp_path}/crow/2.png is the same photo as crow/2 (copy).png."
    assert [note.partition(" left out")[0] for note in photos.notes] == [
        f"1 file beside the folders of {tmp_path}", f"1 file of 17 in {tmp_path}", "1 photo"
    ]  # fmt: skip
    assert photos.notes[2] == "1 photo left out, because the class has the same one already."


def test_a_divided_folder_gives_the_photos_of_one_part(tmp_path):
    fill(tmp_path, train__cat=2, train__dog=3, test__cat=1)
    assert read_photos(tmp_path).counts == {"cat": 2, "dog": 3}
    tested = read_photos(tmp_path, part="test")
    assert tested.counts == {"cat": 1, "dog": 0}
    assert names(tested.images) == ["test/cat/0.png"]
    assert tested.notes == ()
    shutil.rmtree(tmp_path / "train" / "dog")
    fill(tmp_path, test__dog=1)
    with pytest.raises(DataError, match="no image to train on for 1 class: 'dog'"):
        read_photos(tmp_path)


def test_a_photo_in_two_classes_is_refused(tmp_path):
    fill(tmp_path, cat=2, dog=2)
    shutil.copy(tmp_path / "cat" / "1.png", tmp_path / "dog" / "1.png")
    with pytest.raises(
        DataError, match=r"cat/1\.png and .*dog/1\.png are the same photo in two classes, 'cat' and 'dog'; remove"
    ):
        read_photos(tmp_path)


def touch(root, *files):
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(b"")


def test_numbers_sort_as_numbers_and_capitals_beside_small_letters():
    names = ["img10", "img2", "Img1", "b", "A", "a", "10", "9", "img2b", ""]
    assert sorted(names, key=natural) == ["", "9", "10", "A", "a", "b", "Img1", "img2", "img2b", "img10"]


@settings(max_examples=50)
@given(st.lists(st.text("aB10é٣ ", max_size=6), max_size=8, unique=True))
def test_the_order_is_total_and_does_not_depend_on_where_it_starts(names):
    backwards = names[::-1]
    assert sorted(names, key=natural) == sorted(backwards, key=natural)


def test_what_lies_deeper_belongs_to_the_class_and_hidden_files_to_none(tmp_path):
    touch(tmp_path, "cat/2.png", "cat/10.png", "cat/more/deep/1.png", "cat/.DS_Store", "cat/Thumbs.db",
          "dog/1.png", ".git/x/1.png", "__MACOSX/cat/1.png", "dog/.hidden/1.png")  # fmt: skip
    assert class_tree(tmp_path) == {"cat": ["cat/2.png", "cat/10.png", "cat/more/deep/1.png"], "dog": ["dog/1.png"]}
    assert class_tree(tmp_path, "cat") == {"more": ["cat/more/deep/1.png"]}


def test_links_are_followed_and_loops_of_links_end(tmp_path):
    touch(tmp_path, "data/cat/1.png", "elsewhere/2.png")
    cat = tmp_path / "data" / "cat"
    (cat / "linked").symlink_to(tmp_path / "elsewhere")
    (cat / "up").symlink_to(tmp_path / "data" / "cat")
    (tmp_path / "elsewhere" / "back").symlink_to(cat)
    (cat / "itself").symlink_to(cat / "itself")
    assert class_tree(tmp_path / "data") == {"cat": ["cat/1.png", "cat/itself", "cat/linked/2.png"]}
    touch(tmp_path, "more/dog/1.png")
    (tmp_path / "more" / "bird").symlink_to(tmp_path / "elsewhere")  # a class folder may be a link, too
    assert class_tree(tmp_path / "more")["bird"][0] == "bird/2.png"


def test_names_that_look_the_same_are_grouped():
    assert alike(["Cat", "dog", "cat", "caf\u00e9", "cafe\u0301", "cow"]) == [
        ["Cat", "cat"],
        ["caf\u00e9", "cafe\u0301"],
    ]
    assert alike(["A01", "A1", "a01", "a1"]) == [["A01", "a01"], ["A1", "a1"]]


def test_a_folder_that_may_not_be_read_is_said(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"none cannot be listed \(No such file or directory\)"):
        listing(tmp_path / "none")

    def forbid(folder):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)

    monkeypatch.setattr(os, "scandir", forbid)
    with pytest.raises(DataError, match=r"cannot be listed \(Permission denied\)"):
        class_tree(tmp_path)
