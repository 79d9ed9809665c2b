import json

import pytest

from masil.errors import DataError
from masil.learner import Masil


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


def test_people_read_a_table(masil, both):
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
    done = masil("evaluate", taught, photos(tmp_path / "test", {"owl": 8, "emu": 9}, 2))
    with pytest.raises(DataError, match="knows none of the 2 classes of .*, such as 'emu'; it knows 'bird a'"):
        raise done.exception
