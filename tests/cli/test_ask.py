import json

import pytest

from masil.data import sources
from masil.errors import DataError, InputError
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


def test_a_table_for_people_and_paths_from_standard_input(masil, taught, test_photos, tmp_path):
    said = masil("predict", taught, test_photos / "bird b", "--top", 2, "--always").stdout
    assert "confidence" in said
    assert "bird b" in said
    assert said.count("%") == 6  # two photos: the answer with its two figures, and the class that comes next
    paths = sorted(map(str, test_photos.glob("*/*.png")))[:3]
    done = masil("predict", taught, "-", "--json", given="\n".join(paths))
    assert [json.loads(line)["image"] for line in done.stdout.splitlines()] == paths
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="There is no photo in"):
        masil("predict", taught, tmp_path / "empty")


def test_bad_files_do_not_stop_the_others_nor_are_these_read_twice(masil, taught, test_photos, tmp_path, monkeypatch):
    bad = test_photos / "bird a" / "0.txt"
    bad.write_text("hello")
    done = masil("predict", taught, test_photos, tmp_path / "none.jpg", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 2
    assert len(lines) == 14
    assert [line["image"] for line in lines if "error" in line] == [str(bad), str(tmp_path / "none.jpg")]
    assert "There is no file" in done.stderr
    assert "2 files of 14 could not be read." in done.stderr
    read, opened = [], sources.read_square

    def counted(path, framing):
        read.append(path.name)
        return opened(path, framing)

    monkeypatch.setattr(sources, "read_square", counted)
    done = masil("predict", taught, test_photos, "--skip-bad")
    assert done.exit_code == 0
    assert "Note:" in done.stderr
    assert len(read) == 13


def test_a_model_that_has_not_learnt_what_unknown_is(masil, taught, test_photos, monkeypatch):
    load = Masil.load

    def old(path, **options):
        model = load(path, **options)
        object.__setattr__(model.base_, "unknown_detector", None)
        return model

    monkeypatch.setattr(Masil, "load", old)
    done = masil("predict", taught, test_photos / "bird a", "--json")
    assert done.exit_code == 0
    assert {(line["known"], line["unknown"]) for line in map(json.loads, done.stdout.splitlines())} == {(None, False)}


@pytest.fixture
def both(masil, photos, birds, tmp_path, known):
    """A model with old and new classes, and photos of those and of two that were never taught."""
    done = masil("learn", birds, photos(tmp_path / "new", {"owl": 8, "kite": 9}, 5, seed=3), "--device", "cpu")
    assert done.exit_code == 0, done.output
    classes = {**known, "owl": 8, "kite": 9, "dove": 10, "emu": 11}
    return birds, photos(tmp_path / "test", classes, 3, seed=7)


def test_old_new_and_never_taught(masil, both, known):
    birds, test = both
    found = json.loads(masil("evaluate", birds, test, "--json", "--device", "cpu").stdout)
    model = Masil.load(birds, device="cpu")

    def share(names):
        files = [file for name in names for file in sorted((test / name).iterdir())]
        return model.score(files, [file.parent.name for file in files])

    old, new = share(known), share(["owl", "kite"])
    assert found["old"] == pytest.approx(old)
    assert found["new"] == pytest.approx(new)
    assert found["accuracy"] == pytest.approx((6 * old + 2 * new) / 8)
    assert found["harmonic_mean"] == pytest.approx(2 * old * new / (old + new))
    assert (found["images"], found["classes"], found["untested"]) == (24, 8, [])
    never = found["never_taught"]
    assert (never["classes"], never["images"]) == (["dove", "emu"], 6)
    assert never["auroc"] > 0.7
    shares = [each["accuracy"] for each in found["per_class"]]
    assert shares == sorted(shares)
    said = masil("evaluate", *both, "--worst", 2).stdout
    assert "24 photos, 8 classes" in said
    assert "Never taught: 2 classes (dove, emu), 6 photos." in said
    assert "Worst first" in said


def test_a_goal_that_is_missed_exits_with_1(masil, photos, taught, tmp_path):
    wrong = photos(tmp_path / "test", {"bird a": 3, "bird b": 4}, 2)
    done = masil("evaluate", taught, wrong, "--at-least", 0.9)
    assert done.exit_code == 1
    assert "At least 90.0 % was asked for: missed." in done.stdout
    right = photos(tmp_path / "right", {"bird a": 0, "bird b": 1}, 2)
    done = masil("evaluate", taught, right, "--at-least", 0.5, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["reached"] is True


def test_a_folder_of_other_classes_is_a_sentence(masil, photos, taught, tmp_path):
    with pytest.raises(DataError, match="knows none of the 2 classes of .*, such as 'emu'; it knows 'bird a'"):
        masil("evaluate", taught, photos(tmp_path / "test", {"owl": 8, "emu": 9}, 2))
