import errno
import json
import shutil
import sys

import pytest

from masil.cli import main
from masil.errors import DataError, StorageError
from masil.learner import Masil, editing


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


def test_nothing_is_overwritten_unasked(masil, photos, small, tmp_path, known):
    base = photos(tmp_path / "base", known, 3)
    target = tmp_path / "b.masil"
    target.write_bytes(b"precious")
    done = masil("fit", base, "-m", target, *small)
    with pytest.raises(StorageError, match="b.masil exists already; choose another name, or overwrite it with --force"):
        raise done.exception
    assert target.read_bytes() == b"precious"
    done = masil("fit", base, "-m", target, *small, "--force", "--json")
    assert json.loads(done.stdout)["classes"] == 6
    Masil.load(target, device="cpu")


def test_a_dry_run_writes_nothing(masil, photos, tmp_path, known):
    base = photos(tmp_path / "base", known, 2)
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
    done = masil("fit", photos(tmp_path / "base", classes, n), "-m", tmp_path / "b.masil")
    with pytest.raises(DataError, match=sentence):
        raise done.exception
    assert not (tmp_path / "b.masil").exists()


def test_a_class_of_one_photo_is_noted(masil, photos, small, tmp_path):
    base = photos(tmp_path / "base", {"wren": 0, "crow": 1}, 4)
    photos(base, {"lone": 2}, 1)
    done = masil("fit", base, "-m", tmp_path / "b.masil", *small)
    assert done.exit_code == 0, done.output
    assert "Note: 'lone' has one photo only; with five a class is recognised far more often." in done.stdout


def test_one_photo_in_two_classes_is_refused(masil, photos, tmp_path):
    base = photos(tmp_path / "base", {"wren": 0, "crow": 1}, 3)
    shutil.copy(base / "wren" / "0-1.png", base / "crow" / "copy.png")
    done = masil("fit", base, "-m", tmp_path / "b.masil")
    with pytest.raises(DataError, match="crow.copy.png and .*wren.0-1.png are the same photo in two classes, 'crow'"):
        raise done.exception


def test_any_class_name_will_do(masil, photos, small, tmp_path):
    names = {"🐦 emoji": 0, "[red]markup": 1, "line\nbreak": 2, "x" * 250: 3}
    done = masil("fit", photos(tmp_path / "base", names, 3), "-m", tmp_path / "b.masil", *small)
    assert done.exit_code == 0, done.output
    found = masil("info", tmp_path / "b.masil", "--classes").stdout
    assert "🐦 emoji" in found
    assert "[red]markup" in found
    assert "line�break" in found
    assert set(Masil.load(tmp_path / "b.masil").classes_.tolist()) == set(names)


def test_files_that_are_no_photos(masil, photos, small, tmp_path, known):
    base = photos(tmp_path / "base", known, 3)
    (base / "bird a" / "readme.txt").write_text("hello")
    done = masil("fit", base, "-m", tmp_path / "b.masil", *small)
    with pytest.raises(DataError, match="1 file of 19 in .* cannot be used"):
        raise done.exception
    done = masil("fit", base, "-m", tmp_path / "b.masil", *small, "--skip-bad")
    assert "Note: 1 file of 19 in" in done.stdout


def test_train_and_test_are_kept_apart(masil, photos, tmp_path, known):
    photos(tmp_path / "base" / "train", known, 3)
    photos(tmp_path / "base" / "test", known, 2, seed=1)
    done = masil("fit", tmp_path / "base", "-m", tmp_path / "b.masil", "--dry-run")
    assert "6 classes, 18 photos would be learnt" in done.stdout


def test_a_full_disk_leaves_the_old_model(masil, photos, small, tmp_path, known, monkeypatch):
    base, target = photos(tmp_path / "base", known, 3), tmp_path / "b.masil"
    target.write_bytes(b"precious")

    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    done = masil("fit", base, "-m", target, *small, "--force")
    with pytest.raises(StorageError, match="The disk is full: .*b.masil was not written, and what was there before is"):
        raise done.exception
    assert target.read_bytes() == b"precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b.masil", "base"]


def test_a_folder_that_may_not_be_written_is_said_before_the_work(masil, photos, tmp_path, known, monkeypatch):
    base = photos(tmp_path / "base", known, 2)

    def refuse(_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    monkeypatch.setattr("masil.learner.Masil.fit", lambda *_, **__: pytest.fail("worked for nothing"))
    done = masil("fit", base, "-m", tmp_path / "b.masil")
    with pytest.raises(StorageError, match="b.masil cannot be written: no permission to write in"):
        raise done.exception


def test_a_model_that_another_process_writes_is_a_sentence(masil, photos, tmp_path, known, monkeypatch):
    base = photos(tmp_path / "base", known, 2)
    monkeypatch.setattr("masil.learner.model_file.PATIENCE", 0.0)
    with editing(tmp_path / "b.masil", new=True):
        done = masil("fit", base, "-m", tmp_path / "b.masil")
    with pytest.raises(StorageError, match="Another process is writing .*b.masil"):
        raise done.exception


def test_a_wrong_name_is_suggested_and_exits_with_2(photos, tmp_path, known, monkeypatch, capsys):
    base = photos(tmp_path / "base", known, 2)
    monkeypatch.setattr("masil.hardware.probe", lambda: None)
    monkeypatch.setattr(sys, "argv", ["masil", "fit", str(base), "-m", str(tmp_path / "b"), "--backbone", "resnet21"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "masil: There is no backbone called 'resnet21'; did you mean 'resnet20'?\n"
