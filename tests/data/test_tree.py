import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.data.tree import alike, class_tree, listing, natural
from masil.errors import DataError


def touch(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(b"")


def test_numbers_sort_as_numbers_and_capitals_beside_small_letters() -> None:
    names = ["img10", "img2", "Img1", "b", "A", "a", "10", "9", "img2b", ""]
    assert sorted(names, key=natural) == ["", "9", "10", "A", "a", "b", "Img1", "img2", "img2b", "img10"]


@settings(max_examples=50)
@given(st.lists(st.text("aB10é٣ ", max_size=6), max_size=8, unique=True))
def test_the_order_is_total_and_does_not_depend_on_where_it_starts(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(names, key=natural) == sorted(backwards, key=natural)


def test_what_lies_deeper_belongs_to_the_class_and_hidden_files_to_none(tmp_path: Path) -> None:
    touch(tmp_path, "cat/2.png", "cat/10.png", "cat/more/deep/1.png", "cat/.DS_Store", "cat/Thumbs.db",
          "dog/1.png", ".git/x/1.png", "__MACOSX/cat/1.png", "dog/.hidden/1.png")  # fmt: skip
    assert class_tree(tmp_path) == {
        "cat": ["cat/2.png", "cat/10.png", "cat/more/deep/1.png"],
        "dog": ["dog/1.png"],
    }
    assert class_tree(tmp_path, "cat") == {"more": ["cat/more/deep/1.png"]}


def test_links_are_followed_and_loops_of_links_end(tmp_path: Path) -> None:
    touch(tmp_path, "data/cat/1.png", "elsewhere/2.png")
    cat = tmp_path / "data" / "cat"
    (cat / "linked").symlink_to(tmp_path / "elsewhere")
    (cat / "up").symlink_to(tmp_path / "data" / "cat")
    (tmp_path / "elsewhere" / "back").symlink_to(cat)
    (cat / "itself").symlink_to(cat / "itself")
    assert class_tree(tmp_path / "data") == {"cat": ["cat/1.png", "cat/itself", "cat/linked/2.png"]}


def test_a_class_folder_may_be_a_link(tmp_path: Path) -> None:
    touch(tmp_path, "store/1.png", "data/dog/1.png")
    (tmp_path / "data" / "cat").symlink_to(tmp_path / "store")
    assert class_tree(tmp_path / "data") == {"cat": ["cat/1.png"], "dog": ["dog/1.png"]}


def test_names_that_look_the_same_are_grouped() -> None:
    assert alike(["Cat", "dog", "cat", "caf\u00e9", "cafe\u0301", "cow"]) == [
        ["Cat", "cat"],
        ["caf\u00e9", "cafe\u0301"],
    ]
    assert alike(["A01", "A1", "a01", "a1"]) == [["A01", "a01"], ["A1", "a1"]]


def test_no_class_and_no_folder_are_said(tmp_path: Path) -> None:
    touch(tmp_path, "1.png")
    with pytest.raises(DataError, match="holds no folder; put the images of each class in a folder"):
        class_tree(tmp_path)
    with pytest.raises(DataError, match=r"none cannot be listed \(No such file or directory\)"):
        listing(tmp_path / "none")


def test_a_folder_that_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "cat/1.png")

    def forbid(folder: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)

    monkeypatch.setattr(os, "scandir", forbid)
    with pytest.raises(DataError, match=r"cannot be listed \(Permission denied\)"):
        class_tree(tmp_path)
