import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from masil.backbones import create
from masil.benchmark import read_run
from masil.cli import app, main
from masil.data import DATASETS, Dataset, DatasetSource, array_images
from masil.errors import InputError, StorageError, UnknownNameError
from masil.hardware import Hardware, remember
from masil.methods import METHODS, DCosine
from masil.protocol import PROTOCOLS, Protocol
from masil.report import write_report
from masil.training import RECIPES, Recipe

SHAPE = Protocol("squares", "squares", base_classes=4, sessions=2, way=2, shot=3)
TINY = Recipe(name="tiny", backbone="resnet20", width=0.5, framing=(16, 16), stages=((1, 16),), batch=8, compile=False)


def squares(_root):
    generator = np.random.default_rng(0)
    colours = generator.integers(0, 256, (8, 3, 1, 1))

    def part(each):
        labels = torch.arange(8).repeat(each)
        pixels = colours[labels] + generator.integers(-20, 21, (len(labels), 3, 16, 16))
        return array_images(pixels.clip(0, 255).astype(np.uint8), labels)

    return Dataset("squares", tuple("abcdefgh"), part(4), part(3), notes=("one square is missing.",))


@pytest.fixture(autouse=True)
def options(tmp_path, monkeypatch):
    """A small protocol and a random backbone for it, on a machine that is known."""
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    remember(Hardware("cpu", {"cpu": "float32"}))
    monkeypatch.setitem(PROTOCOLS, "squares", SHAPE)
    monkeypatch.setitem(DATASETS, "squares", DatasetSource(lambda root: root, squares))
    monkeypatch.setattr("masil.report.write_report", lambda _, folder: folder / "report.html")  # takes seconds
    save_file(create("resnet20").state_dict(), tmp_path / "weights.safetensors")
    return ["squares", "--method", "d-cosine", "--backbone", "resnet20", "--weights", "weights.safetensors"]


@pytest.fixture
def grid(options):
    """The options of a grid in the same setting."""
    return ["--protocol", "squares", "--jobs", "1", "--out", "out", *options[3:]]


def masil(*arguments, command="run", code=0):
    done = CliRunner().invoke(app, [command, *arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_one_draw_is_a_line_a_session_and_writes_nothing(options, tmp_path, caplog):
    before = set(tmp_path.iterdir()) | {tmp_path / "cache"}
    said = masil(*options)
    assert "Note: one square is missing." in said
    assert "Shots: draw 0 (there are no standard ones)." in said
    assert "squares: d-cosine on resnet20, 2-way 3-shot, %" in said
    rows = [line.split()[:2] for line in said.splitlines() if re.match(r" +\d", line)]
    assert rows == [["0", "4"], ["1", "6"], ["2", "8"]]
    logged = re.findall(r"d-cosine, draw 0, session (\d): \d+\.\d\d % right", caplog.text)
    assert logged == ["0", "1", "2"]  # no terminal
    assert re.search(r"average \d+\.\d\d   performance drop -?\d+\.\d\d   generalised accuracy \d+\.\d\d\n", said)
    assert "±" not in said
    assert set(tmp_path.iterdir()) == before


def test_classes_that_no_session_teaches_are_said(options, monkeypatch):
    monkeypatch.setitem(PROTOCOLS, "squares", replace(SHAPE, base_classes=3))
    said = masil(*options)
    assert "Note: 3 base classes and 2 sessions of 2 leave out 1 of the 8 classes of 'squares'." in said


def test_several_draws_leave_a_record_and_a_report(options, tmp_path, monkeypatch):
    monkeypatch.setattr("masil.report.write_report", write_report)
    said = masil(*options, "--draws", "2", "--seed", "3", "--flip", "--out", "out")
    assert "mean ± std of 2 draws" in said
    assert re.search(r"average \d+\.\d\d ± \d+\.\d\d ", said)
    assert "report.html" in said
    record = read_run(tmp_path / "out" / "d-cosine")
    assert [draw.draw for draw in record.draws] == [0, 1]
    assert (record.seed, record.views) == (3, 2)
    assert len(record.weights) == 64
    assert "d-cosine" in (tmp_path / "out" / "report.html").read_text()
    value = json.loads((tmp_path / "out" / "d-cosine" / "run.json").read_text())
    assert value["method"] == "d-cosine"
    assert f"{value['sessions'][-1]['accuracy']:.2f} ± {value['sessions'][-1]['accuracy_std']:.2f}" in said


def test_a_folder_is_not_written_over_but_can_be_gone_on_with(options, tmp_path):
    masil(*options, "--draw", "5", "--out", "out")
    with pytest.raises(StorageError, match="holds another run: views 1 there, 2 here"):
        masil(*options, "--draw", "5", "--out", "out", "--flip")
    masil(*options, "--draw", "5", "--out", "out", "--method", "teen", "--set", "teen.a=0.25")
    masil(*options, "--draw", "6", "--out", "out")
    assert [draw.draw for draw in read_run(tmp_path / "out" / "d-cosine").draws] == [5, 6]
    (chosen,) = (tmp_path / "out").glob("teen-*/run.json")
    assert read_run(chosen).given == {"a": 0.25}


def test_a_recipe_trains_the_base_session_first(options, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "tiny", TINY)
    own = options[:3]  # without a backbone
    masil(*own, "--recipe", "tiny", "--out", "out")
    record = read_run(tmp_path / "out" / "d-cosine")
    assert record.recipe == "tiny"
    assert [row["epoch"] for row in record.extras["history"]] == [1]
    assert "d-cosine on resnet20" in masil(*own, "--checkpoint", "out/base")
    masil(*own, "--recipe", "tiny", "--set", "recipe.epochs=2", "--set", "recipe.sgd.lr=0.05", "--out", "longer")
    record = read_run(tmp_path / "longer" / "d-cosine")
    assert (record.recipe, len(record.extras["history"])) == ("tiny epochs=2 sgd.lr=0.05", 2)
    grid = ["--protocol", "squares", "--recipe", "tiny", "--draws", 1, "--jobs", 1]
    masil(*grid, "--methods", "alice", "--out", "alone", command="bench")  # which trains in its own way
    assert not (tmp_path / "alone" / "base").exists()
    chosen = ["--protocol", "squares", "--checkpoint", "out/base", "--draws", 1, "--jobs", 1, "--without", "tiny"]
    masil(*chosen, "--methods", "d-cosine+balance", "--out", "chosen", command="bench")
    assert read_run(tmp_path / "chosen" / "d-cosine+balance").without == "tiny"
    assert len(list((tmp_path / "chosen" / "without").iterdir())) == 2
    with pytest.raises(InputError, match="--without tiny has no effect: no method here chooses parameters"):
        masil(*chosen, "--methods", "d-cosine", "--out", "chosen", command="bench")
    assert read_run(tmp_path / "alone" / "alice").recipe == "tiny+alice"
    monkeypatch.setitem(PROTOCOLS, "squares", replace(SHAPE, base_classes=2))
    with pytest.raises(InputError, match="base is of another protocol: its recipe is 'tiny' and it knows 4 base class"):
        masil(*own, "--checkpoint", "out/base")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--method", "masill"], "There is no method called 'masill'; did you mean 'masil'?"),
        (["--backbone", "resnet21"], "There is no backbone called 'resnet21'; did you mean 'resnet20'?"),
        (["--recipe", "cub200-gentl", "--out", "out"], "There is no recipe called 'cub200-gentl'; did you mean"),
        (["--weights", "nowhere.safetensors"], "nowhere.safetensors"),
        (["--draws", "2", "--draw", "1"], "give one of the two"),
        (["--draws", "0"], "there must be one at least"),
        (["--set", "alpha=3"], "--set alpha=3 is not of the form METHOD.NAME=VALUE, such as masil.alpha=0.3."),
        (["--set", "teen.a=3"], "There is no method to be played called 'teen'"),
        (["--set", "d-cosine.alpha=3"], "Method 'd-cosine' has no parameter 'alpha'"),
        (["--draws", str(10**20)], "100000000000000000000 draws were asked for; the most is 1000000."),
        (["--draw", str(2**63)], "Draws are counted from 0 to 2⁶³ − 1"),
        (["--recipe", "cifar100-fast"], "trains a base session in OUT/base; name the folder with --out"),
        (["--set", "recipe.epochs=3"], "--set recipe.epochs changes a recipe; name the recipe with --recipe."),
        (
            ["--recipe", "cifar100-fast", "--out", "out", "--set", "recipe.sgd.momentun=3"],
            "A recipe has no 'sgd.momentun' to be set; did you mean 'momentum'?",
        ),
        (["--recipe", "cifar100-fast", "--out", "out", "--set", "recipe.epochs=1"], "stage"),
        (["--checkpoint", "nowhere"], "There is no base session in nowhere"),
    ],
)
def test_bad_input_is_a_sentence(options, more, sentence):
    with pytest.raises((InputError, StorageError, UnknownNameError), match=re.escape(sentence)):
        masil(*(options[:3] if more[0] in ("--recipe", "--checkpoint") else options), *more)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("teen.a=abc", "The parameter 'a' of method 'teen' cannot be 'abc'."),
        ("masil.shrinkage=true", "The shrinkage is True"),
        ("masil.power=7", "The power is 7"),
        ("masil.concepts=2.5", "`concepts` is 2.5"),
    ],
)
def test_values_of_parameters_are_checked_before_any_image_is_looked_at(options, monkeypatch, value, sentence):
    monkeypatch.setattr("masil.benchmark.grid.draw_data", lambda *_: pytest.fail("images were looked at"))
    with pytest.raises(InputError, match=re.escape(sentence)):
        masil(*options, "--method", value.partition(".")[0], "--set", value)


def test_ctrl_c_is_exit_code_130_and_keeps_finished_draws(options, tmp_path, monkeypatch, capsys):
    plain, sessions = DCosine.learn, []

    def stopping(method, shots):
        sessions.append(int(shots.labels.min()))
        if len(sessions) > SHAPE.sessions:  # in the second draw
            raise KeyboardInterrupt
        plain(method, shots)

    monkeypatch.setattr(DCosine, "learn", stopping)
    monkeypatch.setattr(sys, "argv", ["masil", "run", *options, "--draws", "2", "--out", "out"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert "finished draws are kept in out; the same command goes on." in capsys.readouterr().err
    record = read_run(tmp_path / "out" / "d-cosine")
    assert [draw.draw for draw in record.draws] == [0]
    assert record.draws[0].stamp.command.startswith("masil run squares --method d-cosine")


def test_figures_that_cannot_be_drawn_are_refused_before_the_first_session(options, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match="Figures are an extra of masil"):
        masil(*options, "--out", "out")
    assert not Path("out").exists()
    assert "average" in masil(*options)  # without a report, none are needed


def test_a_grid_is_a_line_a_method_and_failures_are_said(grid, tmp_path, monkeypatch, caplog):
    def broken(**_):
        raise RuntimeError("the moon is full")

    monkeypatch.setitem(METHODS, "broken", broken)
    said = masil(*grid, "--methods", "d-cosine, broken", "--draws", "2", command="bench", code=1)
    assert "squares on resnet20, 2-way 3-shot, %" in said
    assert re.search(r"d-cosine +2 +\d+\.\d\d ± \d+\.\d\d ", said)
    assert "broken, draw 0: failed: RuntimeError: the moon is full (also draw 1)" in said
    assert said.count("the moon is full") == 1
    assert "The same command tries the failed cells again and no other." in said
    assert [draw.draw for draw in read_run(tmp_path / "out" / "d-cosine").draws] == [0, 1]
    assert "The records and the report are in out: out/report.html" in said
    assert "d-cosine, draw 1: played." in caplog.text


def test_all_says_once_what_it_leaves_out_and_why(grid, monkeypatch):
    some = {name: METHODS[name] for name in ("d-cosine", "ssfe-net", "closer")}
    monkeypatch.setattr("masil.methods.METHODS", some)
    said = masil(*grid, "--methods", "all", "--draws", "1", command="bench")
    assert "Note: 'all' leaves out ssfe-net, closer:\n  'ssfe-net' is a way to train the base session;" in said
    assert "\n  Of 'closer' D-Cosine is all that a shared backbone leaves.\n" in said
    assert re.search(r"d-cosine +1 +\d+\.\d\d ", said)
    said = masil(*grid, "--methods", "ssfe-net", "--draws", "1", command="bench", code=1)
    assert "ssfe-net, draw 0: failed: 'ssfe-net' is a way to train the base session" in said


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--methods", "d-cosine,teem"], "There is no method called 'teem'; did you mean 'teen'?"),
        (["--protocol", "cifar10"], "There is no protocol called 'cifar10'; did you mean 'cifar100'?"),
        (["--backbone", "resnet21"], "There is no backbone called 'resnet21'; did you mean 'resnet20'?"),
        (["--standard"], "The field has no standard shots of 'squares'; play draws of them with --draws."),
        (["--draws", "2", "--standard"], "--draws 2 and --standard name different shots"),
        (["--methods", ","], "A benchmark needs at least one method."),
        (["--jobs", "0"], "0 jobs were asked for; give at least 1."),
        (["--cluster", "there:80"], "--jobs 1 has no effect here: the workers at there:80 say how many"),
    ],
)
def test_bad_input_of_a_grid_is_a_sentence(grid, more, sentence):
    with pytest.raises((InputError, UnknownNameError), match=re.escape(sentence)):
        masil(*grid, *more, command="bench")


def test_a_cluster_is_asked_for_by_its_address(grid):
    with pytest.raises(InputError, match=r"No scheduler answers at nowhere \(missing port number"):
        masil(*grid[:2], *grid[4:], "--cluster", "nowhere", command="bench")
