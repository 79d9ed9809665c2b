import json
import re
import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest

from masil.benchmark import Entry, Origin, left_out, prepare
from masil.cli.options import read_parameters
from masil.cli.train import warn_of_seen_classes
from masil.errors import MasilError
from masil.methods import METHODS, make
from masil.protocol import PROTOCOLS
from masil.training import RECIPES, Recipe, load_trained

TINY = Recipe(name="tiny", backbone="resnet20", width=0.5, stages=((2, 16),), batch=16, compile=False)


def test_a_base_session_is_trained_and_its_folder_can_be_judged(masil, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setitem(RECIPES, "characters-fast", TINY)
    done = masil("train", "characters", "-o", tmp_path)
    final = tmp_path / "final"
    assert f"masil run characters --checkpoint {final}" in done.output
    assert load_trained(final).names == tuple("0123456789ABCDEFGHIJKLMNOPQRSTUV")
    assert len(json.loads((tmp_path / "history.json").read_text())) >= 1
    judged = masil("run", "characters", "--method", "d-cosine", "--checkpoint", final)
    assert "d-cosine on resnet20" in judged.output
    assert "generalised accuracy" in judged.output


@pytest.mark.parametrize("protocol", ["characters", "cifar100", "cub200", "miniimagenet"])
def test_every_benchmark_that_is_trained_for_has_a_recipe_of_its_own(masil, protocol, tmp_path, monkeypatch):
    """Up to the training itself, which takes minutes or hours."""
    asked: list[Recipe] = []

    def stop(images, plan, *_, **__):
        asked.append(plan)
        raise InterruptedError

    monkeypatch.setattr("masil.training.train", stop)
    monkeypatch.setattr("masil.data.load", lambda *_, **__: None)
    monkeypatch.setattr("masil.protocol.sessions", lambda *_: iter([SimpleNamespace(train=None, names=())]))
    with pytest.raises(InterruptedError):
        masil("train", protocol, "-o", tmp_path)
    assert asked[0].name.startswith(protocol)
    assert asked[0] is RECIPES[asked[0].name]


def test_the_paper_s_recipe_leaves_room_for_all_classes_so_that_the_paper_s_method_is_played_on_it(
    masil, tmp_path, monkeypatch
):
    plan = replace(RECIPES["characters-paper-quick"], stages=((1, 16),))
    monkeypatch.setitem(RECIPES, "characters-paper-quick", plan)
    assert plan.loss["reserve"] is None
    masil("train", "characters", "--recipe", "characters-paper-quick", "-o", tmp_path)
    final = tmp_path / "final"
    trained, shape = load_trained(final), PROTOCOLS["characters"]
    assert trained.recipe.loss == make("masil-as-written").base_session(plan, shape).loss
    assert len(trained.frame) == shape.classes > len(trained.class_vectors) == shape.base_classes
    setting = prepare(shape, Origin(checkpoint=final), device="cpu")
    assert not {"masil-as-written", "nc-fscil"} & left_out(setting, map(Entry.of, METHODS)).keys()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "omniglot", "-o"], "no recipe for 'omniglot'; name one of another data set: cifar100-paper"),
        (["train", "characters", "--recipe", "character-fast", "-o"], "did you mean 'characters-fast'?"),
        (["run", "characters", "--checkpoint"], "There is no base session in"),
    ],
)
def test_what_is_not_there_is_a_sentence(masil, arguments, sentence, tmp_path):
    with pytest.raises(MasilError, match=re.escape(sentence)):
        masil(*arguments, tmp_path)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (None, "trained on these classes"),
        (["a", "b"], "trained on these classes"),
        (["a"], "1 of these 2"),
        (["c"], ""),
    ],
)
def test_classes_that_the_backbone_has_seen_are_warned_of(seen, said, capsys):
    warn_of_seen_classes(seen, ["a", "b"], json=False)
    printed = capsys.readouterr().out
    assert said in printed
    assert bool(said) == ("not new to it" in printed)


def test_a_folder_of_photos_is_tuned_for(masil, photos, tmp_path, known, monkeypatch):
    folder = photos(tmp_path / "photos", known, 9)
    found = json.loads(masil("tune", folder, "--shots", 3, "--plays", 1, "--json").stdout)
    assert set(found["chosen"]) == {"shrinkage", "concepts", "alpha", "bias"}
    means = [trial["harmonic_mean"] for trial in found["trials"]]
    assert means == sorted(means, reverse=True)
    assert len(means) == 40
    monkeypatch.setattr("masil.learner.VARIED", {"calibration": ("teen",)})
    printed = masil("tune", folder, "--shots", 3, "--plays", 1, "--all").stdout
    assert "Masil(shrinkage=" in printed
    (line,) = re.findall(r"^For masil run and bench: (.+)$", printed, re.MULTILINE)
    (call,) = re.findall(r"Masil\((.+)\)", printed)
    assert read_parameters(shlex.split(line)[1::2], ["masil"])["masil"] == eval(f"dict({call})")
    assert "the best of 41" in printed
    with pytest.raises(MasilError, match="nothing"):
        masil("tune", tmp_path / "nothing")
