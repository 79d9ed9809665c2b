import json

import pytest

from masil.errors import StorageError


def test_json_has_classes_sessions_and_log(masil, birds, known):
    masil("forget", birds, "bird b", "--by", "ann")
    found = json.loads(masil("info", birds, "--json").stdout)
    assert [each["label"] for each in found["classes"]] == [name for name in known if name != "bird b"]
    assert found["sessions"][0]["images"]["bird a"] == 8
    assert [(each["what"], each["who"]) for each in found["log"]][1:] == [("forgotten", "ann")]
    assert found["backbone"] == "resnet20"
    assert found["bytes"] == birds.stat().st_size
    assert 0.5 < found["tells_unknown_auroc"] <= 1


def test_people_read_tables(masil, taught):
    said = masil("info", taught, "--classes", "--log").stdout
    assert "6 classes" in said
    assert "sees through resnet20, thinks in 8 concepts" in said
    assert "bird f" in said
    assert "taught" in said


def test_no_model_is_a_sentence(masil, tmp_path):
    with pytest.raises(StorageError, match="There is no model at"):
        raise masil("info", tmp_path / "none").exception
