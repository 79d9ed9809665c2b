import json

import pytest

from masil.errors import InputError
from masil.learner import Masil


def test_the_last_session_is_taken_back(masil, photos, birds, tmp_path, known):
    masil("learn", birds, photos(tmp_path / "new", {"owl": 8}, 3), "--device", "cpu")
    said = masil("undo", birds, "--dry-run").stdout
    assert "Session 1 (1 class: owl) would be undone" in said
    assert "owl" in Masil.load(birds).classes_.tolist()
    found = json.loads(masil("undo", birds, "--json", "--by", "ann").stdout)
    assert found == {"session": 1, "images": {"owl": 3}, "undone": True}
    model = Masil.load(birds)
    assert model.classes_.tolist() == list(known)
    assert (model.log_[-1].what, model.log_[-1].who) == ("undone", "ann")


def test_the_base_session_stays(masil, birds):
    before = birds.read_bytes()
    with pytest.raises(InputError, match="Only the base session is left"):
        raise masil("undo", birds).exception
    assert birds.read_bytes() == before
