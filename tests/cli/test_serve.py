"""`masil serve` at the door: what is missing or in use is one sentence, before anything is loaded."""

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from masil.cli.app import app
from masil.errors import MasilError
from masil.studio.server import bind


@pytest.fixture(autouse=True)
def _no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("masil.hardware.probe", lambda: None)


def complaint(*arguments: str) -> str:
    error = CliRunner().invoke(app, ["serve", *arguments]).exception
    assert isinstance(error, MasilError)
    return str(error)


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else there(name))
    sentence = "The studio needs packages that are not installed; get them with: pip install 'masil[studio]'"
    assert complaint("m.masil") == sentence


def test_an_address_a_port_and_a_model_that_cannot_be_had(tmp_path: Path) -> None:
    assert "add --token auto" in complaint("m.masil", "--host", "0.0.0.0")
    assert "There is no model at" in complaint(str(tmp_path / "m.masil"), "--port", "0")
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        sentence = f"Port {port} at 127.0.0.1 is in use already; choose another one with --port."
        assert complaint("m.masil", "--port", str(port)) == sentence
