"""What people bring themselves: a method in a file or a package, a protocol of their photos, a recipe in a file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from masil.benchmark import read_run
from masil.errors import InputError
from masil.methods import find_method
from masil.training import recipe

EXAMPLE = Path(__file__).parents[2] / "examples" / "simple-shot"
METHOD = EXAMPLE / "src" / "simple_shot.py"


@pytest.fixture
def folder(photos, tmp_path):
    return photos(tmp_path / "photos", {name: pattern for pattern, name in enumerate("abcdef")}, 8)


def run_masil(*arguments, cwd, **variables):
    done = subprocess.run(
        [sys.executable, "-m", "masil", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False,
        env=os.environ | {"COLUMNS": "160", **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.usefixtures("folder")
def test_an_installed_package_s_method_is_played_on_one_s_own_photos(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", tmp_path / "site", EXAMPLE], check=True)
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])}
    assert "simple-shot" in run_masil("list", "methods", cwd=tmp_path, **path)
    cut = ["--protocol", "photos", "--base", 2, "--way", 2, "--shot", 3]
    methods = ["--methods", "simple-shot,d-cosine", "--draws", 1, "--jobs", 1, "--set", "simple-shot.centred=false"]
    said = run_masil("bench", *cut, *methods, "--out", "out", cwd=tmp_path, **path)
    assert "simple-shot" in said
    (file,) = (tmp_path / "out").glob("simple-shot-*/run.json")
    record = read_run(file)
    assert (record.given, record.protocol, record.way, record.shot) == ({"centred": False}, "photos", 2, 3)
    assert [row.classes for row in record.draws[0].sessions] == [2, 4, 6]


def test_a_method_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    name, method = find_method(f"{METHOD}:SimpleShot")
    assert (name, method.__module__) == ("SimpleShot", "simple_shot")
    (tmp_path / "faulty_method.py").write_text("import nothing_of_this_name")
    (tmp_path / "json.py").write_text("")
    (tmp_path / "other_classes.py").write_text("class NotAMethod: pass")
    for asked, sentence in (
        (f"{METHOD}:SimpleShut", "has no method called 'SimpleShut'; did you mean 'SimpleShot'?"),
        (
            f"{tmp_path}/other_classes.py:NotAMethod",
            "'NotAMethod' of .*other_classes.py is no method: it is no subclass",
        ),
        (f"{tmp_path}/none.py:A", "There is no file .*none.py, from which the method 'A' was to be taken"),
        (f"{tmp_path}/faulty_method.py:A", "cannot be loaded: ModuleNotFoundError"),
        (f"{tmp_path}/json.py:A", "Another module is called 'json' already"),
    ):
        with pytest.raises(InputError, match=sentence):
            find_method(asked)


def test_a_folder_s_protocol_needs_its_shape_and_others_have_theirs(masil, folder):
    with pytest.raises(InputError, match="is a folder of photos; say --way too"):
        masil("run", folder, "--base", 2, "--shot", 3)
    with pytest.raises(InputError, match="--way is for the protocol of a folder of photos; 'cub200' has its own"):
        masil("run", "cub200", "--way", 5)


def test_a_recipe_of_a_file(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(recipe("characters-fast").to_json() | {"name": "mine", "stages": [[1, 16]]}))
    assert (recipe(str(file)).name, recipe(str(file)).stages) == ("mine", ((1, 16),))
    file.write_text(json.dumps({"name": "mine", "stages": [[1, 16]], "epoch": 3}))
    with pytest.raises(InputError, match="epoch"):
        recipe(str(file))
