import shutil
import subprocess

import pytest

from masil.storage import commit, commit_with, has_commit


def git(folder, *words):
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_a_file_of_one_s_own_is_traced_while_its_commit_holds_it_as_it_is(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("needs git")
    file = tmp_path / "mine.py"
    file.write_text("")
    assert commit_with(file) is None
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    assert commit_with(file) is None
    git(tmp_path, "commit", "-m", "mine")
    assert len(commit_with(file)) == 40
    file.write_text("changed")
    assert commit_with(file) is None


def test_the_commit_is_masil_s_own_and_changes_are_said(tmp_path, monkeypatch):
    if shutil.which("git") is None:
        pytest.skip("needs git")
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "other.py").write_text("")
    monkeypatch.setattr("masil.storage.checkout.PACKAGE", tmp_path)
    assert commit() == (None, None)
    git(tmp_path, "init")
    git(tmp_path, "add", "other.py")
    git(tmp_path, "commit", "-m", "someone else's")
    assert commit() == (None, None)  # installed inside a repository, but not of it
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "masil")
    name, clean = commit()
    assert clean
    assert name is not None
    assert len(name) == 40
    (tmp_path / "other.py").write_text("changed")
    assert commit() == (name, False)
    knows = has_commit.__wrapped__  # it remembers its answers
    assert knows(name) is True
    assert knows("0" * 40) is False
    git(tmp_path, "checkout", "--orphan", "another")
    git(tmp_path, "commit", "-m", "a history without it")
    assert knows(name) is False
    (tmp_path / ".git").rename(tmp_path / "moved")
    assert knows(name) is None
