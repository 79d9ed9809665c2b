import io
import shutil
from pathlib import Path

import pytest

from masil.cli.photos import listed_files, read_photos, refuse_overwriting, shown
from masil.errors import InputError, StorageError


def test_all_photos_of_a_folder_are_read_class_by_class(photos, tmp_path):
    folder = photos(tmp_path / "birds", {"wren": 0, "crow": 1}, 7)
    found = read_photos(folder)
    assert found.counts == {"crow": 7, "wren": 7}
    assert found.labels == ["crow"] * 7 + ["wren"] * 7
    assert all(Path(found.images.name(at)).parent.name == label for at, label in enumerate(found.labels))
    assert found.notes == ()


def test_a_divided_folder_gives_the_part_that_is_asked_for(photos, tmp_path):
    photos(tmp_path / "train", {"wren": 0, "crow": 1}, 3)
    photos(tmp_path / "Test", {"wren": 0, "crow": 1}, 2, seed=1)
    assert read_photos(tmp_path).counts == {"crow": 3, "wren": 3}
    assert read_photos(tmp_path, split="test").counts == {"crow": 2, "wren": 2}


def test_a_photo_that_is_twice_in_its_class_counts_once(photos, tmp_path):
    folder = photos(tmp_path / "birds", {"wren": 0, "crow": 1}, 3)
    shutil.copy(folder / "wren" / "0-0.png", folder / "wren" / "again.png")
    found = read_photos(folder)
    assert found.counts == {"crow": 3, "wren": 3}
    assert found.notes == ("1 photo left out, because the class has the same one already.",)


def test_files_folders_and_a_list_on_standard_input(photos, tmp_path, monkeypatch):
    folder = photos(tmp_path / "birds", {"wren": 0}, 2)
    (folder / ".hidden").mkdir()
    shutil.copy(folder / "wren" / "0-0.png", folder / ".hidden" / "x.png")
    one = folder / "wren" / "0-1.png"
    both = [folder / "wren" / "0-0.png", one]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{one}\n\n{folder}\r\n"))
    assert list(listed_files([str(folder), "-", str(one)])) == [*both, one, *both, one]


def test_a_keyboard_is_no_list(monkeypatch):
    class Keyboard(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Keyboard())
    with pytest.raises(InputError, match="'-' reads a list of paths from standard input, but that is the keyboard"):
        list(listed_files(["-"]))


def test_overwriting_needs_force(tmp_path):
    refuse_overwriting(tmp_path / "new", force=False)
    (tmp_path / "old").touch()
    refuse_overwriting(tmp_path / "old", force=True)
    with pytest.raises(StorageError, match="old exists already"):
        refuse_overwriting(tmp_path / "old", force=False)
    with pytest.raises(StorageError, match="is a folder; give the name of a file"):
        refuse_overwriting(tmp_path, force=True)


def test_names_are_shown_on_one_line():
    assert shown("a\x1b[31m\nb") == "a�[31m�b"
    assert shown("🐦 wren") == "🐦 wren"
    assert len(shown("x" * 300)) == 60
    assert len(shown("x" * 300, None)) == 300
