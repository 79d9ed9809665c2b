import io

import pytest
from rich.console import Console

from masil.progress import bar, quiet, track


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    screen = io.StringIO()
    monkeypatch.setattr("masil.progress.CONSOLE", Console(file=screen, force_terminal=True, width=100))
    return screen


def test_items_pass_through_and_a_terminal_shows_how_far(terminal: io.StringIO) -> None:
    assert list(track([1, 2, 3], "Counting")) == [1, 2, 3]
    assert "Counting" in terminal.getvalue()
    assert "3/3" in terminal.getvalue()


def test_a_bar_inside_a_bar_stays_silent(terminal: io.StringIO) -> None:
    with bar("Outer", 2) as outer:
        assert list(track("ab", "Inner")) == ["a", "b"]
        outer(2)
    assert "Inner" not in terminal.getvalue()


def test_silence_off_a_terminal_and_on_request(monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO) -> None:
    with quiet():
        assert list(track([1], "Hidden")) == [1]
    assert terminal.getvalue() == ""
    plain = io.StringIO()
    monkeypatch.setattr("masil.progress.CONSOLE", Console(file=plain))
    assert list(track([1], "Hidden")) == [1]
    assert plain.getvalue() == ""
