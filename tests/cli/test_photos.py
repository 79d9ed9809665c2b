import io
import shutil

import pytest

from masil.cli.output import shown
from masil.cli.photos import listed_files
from masil.errors import InputError


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


def test_names_are_shown_on_one_line():
    assert shown("a\x1b[31m\nb") == "a�[31m�b"
    assert shown("🐦 wren") == "🐦 wren"
    assert len(shown("x" * 300)) == 60
    assert len(shown("x" * 300, None)) == 300
