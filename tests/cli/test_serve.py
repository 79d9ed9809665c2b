"""`masil serve` at the door: what is missing or in use is one sentence, before anything is loaded."""

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from masil.cli.app import app
from masil.errors import InputError, StorageError
from masil.studio.server import bind


@pytest.fixture(autouse=True)
def _no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("masil.hardware.probe", lambda: None)


def complaint(*arguments: str) -> BaseException | None:
    return CliRunner().invoke(app, ["serve", *arguments]).exception


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else there(name))
    error = complaint("m.masil")
    assert isinstance(error, InputError)
    assert str(error) == (
        "The studio needs packages that are not installed; get them with: pip install 'masil[studio]'"
    )


def test_another_address_needs_a_token() -> None:
    error = complaint("m.masil", "--host", "0.0.0.0")
    assert isinstance(error, InputError)
    assert "add --token auto" in str(error)


def test_a_port_in_use() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        error = complaint("m.masil", "--port", str(port))
    assert isinstance(error, InputError)
    assert str(error) == f"Port {port} at 127.0.0.1 is in use already; choose another one with --port."


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    error = complaint(str(tmp_path / "m.masil"), "--port", "0")
    assert isinstance(error, StorageError)
    assert "There is no model at" in str(error)
