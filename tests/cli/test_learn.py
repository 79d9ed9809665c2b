import json

import pytest

from masil.errors import InputError, StorageError
from masil.learner import Masil


def test_new_classes_are_learnt_and_named_with_their_neighbours(masil, photos, birds, tmp_path, known):
    new = photos(tmp_path / "new", {"owl": 8, "kite": 9}, 5, seed=3)
    done = masil("learn", birds, new, "--by", "ann", "--note", "walk", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "knows 8 classes now. To take this back: masil undo" in done.stdout
    model = Masil.load(birds, device="cpu")
    assert set(model.classes_.tolist()) == {*known, "owl", "kite"}
    assert (model.sessions_[-1].who, model.sessions_[-1].note) == ("ann", "walk")


def test_json_says_what_may_be_confused(masil, photos, birds, tmp_path):
    new = photos(tmp_path / "new", {"owl": 8, "double of a": 0}, 3, seed=3)
    rows = json.loads(masil("learn", birds, new, "--json", "--device", "cpu").stdout)["classes"]
    nearest = {row["label"]: row["nearest"] for row in rows}
    assert nearest["double of a"] == "bird a"
    assert all(row["images"] == 3 and not row["updated"] for row in rows)


def test_a_dry_run_changes_nothing(masil, photos, birds, tmp_path):
    before = birds.read_bytes()
    new = photos(tmp_path / "new", {"owl": 8, "bird a": 0}, 2, seed=3)
    said = masil("learn", birds, new, "--dry-run").stdout
    assert "1 new class would be learnt, 0 updated. Nothing was changed." in said
    assert "known already; needs --update" in said
    found = json.loads(masil("learn", birds, new, "--dry-run", "--update", "--json").stdout)
    assert found == {"would_learn": {"owl": 2}, "would_update": {"bird a": 2}}
    assert birds.read_bytes() == before


def test_a_known_class_needs_update(masil, photos, birds, tmp_path):
    before = birds.read_bytes()
    more = photos(tmp_path / "more", {"bird a": 0}, 2, seed=3)
    done = masil("learn", birds, more, "--device", "cpu")
    with pytest.raises(InputError, match="'bird a' is known already; to add photos to it use --update"):
        raise done.exception
    assert birds.read_bytes() == before
    assert masil("learn", birds, more, "--update", "--device", "cpu").exit_code == 0
    model = Masil.load(birds, device="cpu")
    assert int(model.memory_.counts[model.memory_.labels.index("bird a")]) == 10


def test_a_model_that_is_not_there_or_damaged(masil, photos, birds, tmp_path):
    new = photos(tmp_path / "new", {"owl": 8}, 2)
    with pytest.raises(StorageError, match="There is no model at .*none.masil"):
        raise masil("learn", tmp_path / "none.masil", new).exception
    birds.write_bytes(birds.read_bytes()[:1000])
    with pytest.raises(StorageError, match="birds.masil is damaged or not a model"):
        raise masil("learn", birds, new).exception


def test_a_learner_of_activations_is_refused(masil, photos, tmp_path):
    import torch

    rows = torch.rand(12, 5, generator=torch.Generator().manual_seed(0))
    Masil(backbone=None, concepts=2).fit(rows, ["a", "b", "c"] * 4).save(tmp_path / "m")
    with pytest.raises(InputError, match="takes activations and not photos; use it from Python"):
        raise masil("learn", tmp_path / "m", photos(tmp_path / "new", {"owl": 8}, 2)).exception
