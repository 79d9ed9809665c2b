"""`masil serve` at the door: what is missing or in use is one sentence, before anything is loaded."""

import importlib.util

import pytest

from masil.errors import MasilError
from masil.studio.server import bind


@pytest.fixture
def complaint(masil):
    """Give the sentence that `masil serve` ends with."""

    def ask(*arguments):
        with pytest.raises(MasilError) as stopped:
            masil("serve", *arguments)
        return str(stopped.value)

    return ask


def test_the_extra_is_named_where_it_is_missing(complaint, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else there(name))
    sentence = "The studio is an extra of masil; in the folder of its source: pip install -e '.[studio]'"
    assert complaint("m.masil") == sentence


def test_an_address_a_port_and_a_model_that_cannot_be_had(complaint, tmp_path):
    assert "add --token auto" in complaint("m.masil", "--host", "0.0.0.0")
    assert "There is no model at" in complaint(str(tmp_path / "m.masil"), "--port", "0")
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        sentence = f"Port {port} at 127.0.0.1 is in use already; choose another one with --port."
        assert complaint("m.masil", "--port", str(port)) == sentence
