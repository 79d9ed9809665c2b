import json

import pytest

from masil.errors import InputError
from masil.learner import Masil


@pytest.fixture
def test_photos(photos, tmp_path, known):
    return photos(tmp_path / "test", known, 2, seed=5)


def test_json_has_a_line_for_each_photo(masil, taught, test_photos, known):
    done = masil("predict", taught, test_photos, "--json", "--top", 3, "--device", "cpu", "--always")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    files = sorted(test_photos.glob("*/*.png"))
    assert [line["image"] for line in lines] == [str(file) for file in files]
    model = Masil.load(taught, device="cpu")
    assert [line["label"] for line in lines] == model.predict(files).tolist()
    expected = model.predict_proba(files)
    for line, row, p in zip(lines, expected, model.known(files), strict=True):
        assert [each["probability"] for each in line["top"]] == pytest.approx(sorted(row, reverse=True)[:3], abs=1e-5)
        assert line["known"] == pytest.approx(p, abs=1e-5)
        assert line["confidence"] == line["top"][0]["probability"]


def test_unknown_is_an_answer(masil, photos, taught, tmp_path):
    never = photos(tmp_path / "never", {"owl": 8, "kite": 9, "dove": 10}, 4, seed=5)
    lines = [json.loads(line) for line in masil("predict", taught, never, "--json").stdout.splitlines()]
    assert sum(line["unknown"] for line in lines) > 6  # more often than not
    assert all((line["label"] is None) == line["unknown"] for line in lines)
    assert "unknown (nearest: bird" in masil("predict", taught, never).stdout
    named = masil("predict", taught, never, "--json", "--always").stdout.splitlines()
    assert not any(json.loads(line)["unknown"] for line in named)


def test_a_table_for_people(masil, taught, test_photos):
    said = masil("predict", taught, test_photos / "bird b", "--top", 2, "--always").stdout
    assert "confidence" in said
    assert "bird b" in said
    assert said.count("%") == 6  # two photos: the answer with its two figures, and the class that comes next


def test_paths_from_standard_input(masil, taught, test_photos):
    paths = sorted(map(str, test_photos.glob("*/*.png")))[:3]
    done = masil("predict", taught, "-", "--json", given="\n".join(paths))
    assert [json.loads(line)["image"] for line in done.stdout.splitlines()] == paths


def test_bad_files_do_not_stop_the_others(masil, taught, test_photos, tmp_path):
    bad = test_photos / "bird a" / "0.txt"
    bad.write_text("hello")
    done = masil("predict", taught, test_photos, tmp_path / "none.jpg", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 2
    assert len(lines) == 14
    assert [line["image"] for line in lines if "error" in line] == [str(bad), str(tmp_path / "none.jpg")]
    assert "There is no file" in done.stderr
    assert "2 files of 14 could not be read." in done.stderr
    done = masil("predict", taught, test_photos, "--skip-bad")
    assert done.exit_code == 0
    assert "Note:" in done.stderr


def test_no_photo_is_a_sentence(masil, taught, tmp_path):
    with pytest.raises(InputError, match="There is no photo in"):
        raise masil("predict", taught, tmp_path).exception


def test_a_model_that_has_not_learnt_what_unknown_is(masil, taught, test_photos, monkeypatch):
    load = Masil.load

    def old(path, **options):
        model = load(path, **options)
        object.__setattr__(model.base_, "rejector", None)
        return model

    monkeypatch.setattr(Masil, "load", old)
    done = masil("predict", taught, test_photos / "bird a", "--json")
    assert done.exit_code == 0
    assert {(line["known"], line["unknown"]) for line in map(json.loads, done.stdout.splitlines())} == {(None, False)}
