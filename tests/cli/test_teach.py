import errno
import json
import shutil
import sys

import pytest

from masil.cli import main
from masil.errors import DataError, InputError, StorageError, UnknownNameError
from masil.learner import Masil, edit_model


@pytest.fixture
def small(weights):
    return ("--backbone", "resnet20", "--weights", weights, "--concepts", 4, "--device", "cpu")


def test_folders_become_a_model(masil, photos, small, tmp_path, known):
    base = photos(tmp_path / "base", known, 5)
    done = masil("fit", base, "-m", tmp_path / "new" / "b.masil", *small, "--by", "ann", "--note", "first")
    assert done.exit_code == 0, done.output
    assert "Learnt 6 classes from 30 photos" in done.stdout
    model = Masil.load(tmp_path / "new" / "b.masil", device="cpu")
    assert model.classes_.tolist() == list(known)
    assert (model.sessions_[0].who, model.sessions_[0].note) == ("ann", "first")
    assert model.score(base.glob("*/*.png"), [file.parent.name for file in base.glob("*/*.png")]) > 0.9
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["b.masil"]  # no lock, no half file


def test_what_the_balance_was_chosen_for_is_in_the_model_and_told(masil, photos, small, tmp_path, known):
    base, model = photos(tmp_path / "base", known, 5), tmp_path / "b.masil"
    done = masil("fit", base, "-m", model, *small, "--aim", "harmonic")
    assert done.exit_code == 0, done.output
    found = json.loads(masil("info", model, "--json").stdout)
    assert (found["aim"], found["balance"]) == ("harmonic", Masil.load(model, device="cpu").balance_)
    said = " ".join(masil("info", model).stdout.split())
    assert f"It aims at the harmonic mean of old and new: a balance of {found['balance']:g}, chosen on base" in said
    with pytest.raises(UnknownNameError, match="did you mean 'harmonic'"):
        masil("fit", base, "-m", tmp_path / "c.masil", *small, "--aim", "harmonc")


def test_nothing_is_overwritten_unasked(masil, photos, small, tmp_path, known):
    base = photos(tmp_path / "base", known, 3)
    with pytest.raises(StorageError, match="is a folder; give the name of a file"):
        masil("fit", base, "-m", tmp_path, *small, "--force")
    target = tmp_path / "b.masil"
    target.write_bytes(b"precious")
    with pytest.raises(StorageError, match="b.masil exists already; choose another name, or overwrite it with --force"):
        masil("fit", base, "-m", target, *small)
    assert target.read_bytes() == b"precious"
    done = masil("fit", base, "-m", target, *small, "--force", "--json")
    assert json.loads(done.stdout)["classes"] == 6
    Masil.load(target, device="cpu")


@pytest.mark.parametrize("divided", [False, True])
def test_a_dry_run_writes_nothing_and_keeps_train_and_test_apart(masil, photos, tmp_path, known, divided):
    base = tmp_path / "base"
    photos(base / "train" if divided else base, known, 2)
    if divided:
        photos(base / "test", known, 2, seed=1)
    done = masil("fit", base, "-m", tmp_path / "b.masil", "--dry-run")
    assert done.exit_code == 0
    assert "6 classes, 12 photos would be learnt into" in done.stdout
    done = masil("fit", base, "-m", tmp_path / "b.masil", "--dry-run", "--json")
    assert json.loads(done.stdout)["classes"] == dict.fromkeys(known, 2)
    assert not (tmp_path / "b.masil").exists()


@pytest.mark.parametrize(
    ("classes", "n", "sentence"),
    [
        ({"wren": 0}, 4, "has one class, 'wren'; to tell classes apart takes at least 2"),
        ({"wren": 0, "crow": 1}, 1, "Every class of .* has one photo; at least one class needs two"),
    ],
)
def test_too_little_is_a_sentence(masil, photos, tmp_path, classes, n, sentence):
    with pytest.raises(DataError, match=sentence):
        masil("fit", photos(tmp_path / "base", classes, n), "-m", tmp_path / "b.masil")
    assert not (tmp_path / "b.masil").exists()


def test_one_photo_in_two_classes_is_refused(masil, photos, small, tmp_path):
    base = photos(tmp_path / "base", {"wren": 0, "crow": 1}, 3)
    shutil.copy(base / "wren" / "0-1.png", base / "crow" / "copy.png")
    with pytest.raises(DataError, match="crow.copy.png and .*wren.0-1.png are the same photo in two classes, 'crow'"):
        masil("fit", base, "-m", tmp_path / "b.masil")
    (base / "crow" / "copy.png").unlink()
    done = masil("fit", base, "-m", tmp_path / "b.masil", *small)
    assert "It cannot tell what it was never taught: for that it needs 3 classes and more photos." in done.stdout


def test_any_class_name_will_do(masil, photos, small, tmp_path):
    names = {"🐦 emoji": 0, "[red]markup": 1, "line\nbreak": 2, "x" * 250: 3}
    done = masil("fit", photos(tmp_path / "base", names, 3), "-m", tmp_path / "b.masil", *small)
    assert done.exit_code == 0, done.output
    found = masil("info", tmp_path / "b.masil", "--classes").stdout
    assert "🐦 emoji" in found
    assert "[red]markup" in found
    assert "line�break" in found
    assert set(Masil.load(tmp_path / "b.masil").classes_.tolist()) == set(names)


def test_files_that_are_no_photos_and_a_class_of_one_photo_are_noted(masil, photos, small, tmp_path, known):
    base = photos(tmp_path / "base", known, 3)
    photos(base, {"lone": 2}, 1, seed=1)
    (base / "bird a" / "readme.txt").write_text("hello")
    with pytest.raises(DataError, match="1 file of 20 in .* cannot be used"):
        masil("fit", base, "-m", tmp_path / "b.masil", *small)
    done = masil("fit", base, "-m", tmp_path / "b.masil", *small, "--skip-bad")
    assert done.exit_code == 0, done.output
    assert "Note: 1 file of 20 in" in done.stdout
    assert "Note: 'lone' has one photo only; with five a class is recognised far more often." in done.stdout


def test_a_full_disk_leaves_the_old_model(masil, photos, small, tmp_path, known, monkeypatch):
    base, target = photos(tmp_path / "base", known, 3), tmp_path / "b.masil"
    target.write_bytes(b"precious")

    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(StorageError, match="The disk is full: .*b.masil was not written, and what was there before is"):
        masil("fit", base, "-m", target, *small, "--force")
    assert target.read_bytes() == b"precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b.masil", "base"]


def test_a_model_that_may_not_be_written_or_is_written_elsewhere(masil, photos, tmp_path, known, monkeypatch):
    """It is said before the work."""
    base = photos(tmp_path / "base", known, 2)
    monkeypatch.setattr("masil.learner.Masil.fit", lambda *_, **__: pytest.fail("worked for nothing"))
    monkeypatch.setattr("masil.learner.model_file.PATIENCE", 0.0)
    sentence = "Another process is writing .*b.masil"
    with edit_model(tmp_path / "b.masil", new=True), pytest.raises(StorageError, match=sentence):
        masil("fit", base, "-m", tmp_path / "b.masil")

    def refuse(_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with pytest.raises(StorageError, match="b.masil cannot be written: no permission to write in"):
        masil("fit", base, "-m", tmp_path / "b.masil")


def test_a_wrong_name_is_suggested_and_exits_with_2(photos, tmp_path, known, monkeypatch, capsys):
    base = photos(tmp_path / "base", known, 2)
    monkeypatch.setattr("masil.hardware.probe", lambda: None)
    monkeypatch.setattr(sys, "argv", ["masil", "fit", str(base), "-m", str(tmp_path / "b"), "--backbone", "resnet21"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "masil: There is no backbone called 'resnet21'; did you mean 'resnet20'?\n"


def test_new_classes_are_learnt_and_named_with_their_neighbours(masil, photos, birds, tmp_path, known):
    new = photos(tmp_path / "new", {"owl": 8, "double of a": 0}, 5, seed=3)
    done = masil("learn", birds, new, "--by", "ann", "--note", "walk", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "knows 8 classes now. To take this back: masil undo" in done.stdout
    model = Masil.load(birds, device="cpu")
    assert set(model.classes_.tolist()) == {*known, "owl", "double of a"}
    assert (model.sessions_[-1].who, model.sessions_[-1].note) == ("ann", "walk")
    masil("undo", birds)
    rows = json.loads(masil("learn", birds, new, "--json", "--device", "cpu").stdout)["classes"]
    nearest = {row["label"]: row["nearest"] for row in rows}
    assert nearest["double of a"] == "bird a"
    assert all(row["images"] == 5 and not row["updated"] for row in rows)


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
    (more / "bird a" / "bad.png").write_text("no photo")  # the name comes before the pixels
    with pytest.raises(InputError, match="'bird a' is known already; to add images to it, teach it with `update`"):
        masil("learn", birds, more, "--device", "cpu")
    assert birds.read_bytes() == before
    (more / "bird a" / "bad.png").unlink()
    assert masil("learn", birds, more, "--update", "--device", "cpu").exit_code == 0
    model = Masil.load(birds, device="cpu")
    assert int(model.memory_.counts[model.memory_.labels.index("bird a")]) == 10


def test_a_model_that_is_not_there_or_damaged(masil, photos, birds, tmp_path):
    new = photos(tmp_path / "new", {"owl": 8}, 2)
    with pytest.raises(StorageError, match="There is no model at .*none.masil"):
        masil("learn", tmp_path / "none.masil", new)
    birds.write_bytes(birds.read_bytes()[:1000])
    with pytest.raises(StorageError, match="birds.masil is damaged or not a model"):
        masil("learn", birds, new)


def test_a_learner_of_activations_is_refused(masil, photos, tmp_path):
    import torch

    rows = torch.rand(12, 5, generator=torch.Generator().manual_seed(0))
    Masil(backbone=None, concepts=2).fit(rows, ["a", "b", "c"] * 4).save(tmp_path / "m")
    with pytest.raises(InputError, match="takes activations and not photos; use it from Python"):
        masil("learn", tmp_path / "m", photos(tmp_path / "new", {"owl": 8}, 2))


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
    before = birds.read_bytes()
    with pytest.raises(InputError, match="Only the base session is left"):
        masil("undo", birds)
    assert birds.read_bytes() == before


def test_a_class_is_erased(masil, birds, known):
    before = birds.read_bytes()
    assert "'bird c' (8 photos) would be forgotten" in masil("forget", birds, "bird c", "--dry-run").stdout
    assert birds.read_bytes() == before
    assert json.loads(masil("forget", birds, "bird c", "--json").stdout)["images"] == 8
    assert Masil.load(birds).classes_.tolist() == [name for name in known if name != "bird c"]


@pytest.mark.parametrize("name", ["../bird c", "🐦", "x" * 300, "--json"])
def test_a_class_that_is_not_there(masil, birds, name):
    with pytest.raises(InputError, match="There is no class .* to forget; (known are: bird a|did you mean 'bird c')"):
        masil("forget", birds, "--", name)
