import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result
from typer.testing import CliRunner

from masil.cli.app import app
from masil.data.characters import CHARACTERS
from masil.errors import MasilError
from masil.training import RECIPES, Recipe, load_trained

TINY = Recipe(name="tiny", backbone="resnet20", width=0.5, stages=((2, 16),), batch=16, compile=False)


def masil(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


def test_a_base_session_is_trained_and_its_folder_can_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, "characters-fast", TINY)
    done = masil("train", "characters", "-o", tmp_path)
    assert done.exit_code == 0, done.exception
    final = tmp_path / "final"
    assert f"masil run characters --checkpoint {final}" in done.output
    assert load_trained(final).names == tuple(CHARACTERS[:32])
    assert len(json.loads((tmp_path / "history.json").read_text())) >= 1
    judged = masil("run", "characters", "--method", "d-cosine", "--checkpoint", final)
    assert "d-cosine on resnet20" in judged.output
    assert "generalised accuracy" in judged.output


@pytest.mark.parametrize("protocol", ["characters", "cifar100", "cub200", "miniimagenet"])
def test_every_benchmark_that_is_trained_for_has_a_recipe_of_its_own(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the training itself, which takes minutes or hours."""
    asked: list[Recipe] = []

    def stop(images: object, plan: Recipe, *_: object, **__: object) -> None:
        asked.append(plan)
        raise InterruptedError

    monkeypatch.setattr("masil.training.train", stop)
    monkeypatch.setattr("masil.data.load", lambda *_, **__: None)
    monkeypatch.setattr("masil.protocol.sessions", lambda *_: iter([SimpleNamespace(train=None, names=())]))
    done = masil("train", protocol, "-o", tmp_path)
    assert isinstance(done.exception, InterruptedError), done.output
    assert asked[0].name.startswith(protocol)
    assert asked[0] is RECIPES[asked[0].name]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["train", "omniglot", "-o"],
            "There is no recipe for 'omniglot'; name one of another data set: cifar100-paper",
        ),
        (["train", "characters", "--recipe", "character-fast", "-o"], "did you mean 'characters-fast'?"),
        (["run", "characters", "--checkpoint"], "There is no base session in"),
    ],
)
def test_what_is_not_there_is_a_sentence(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = masil(*arguments, tmp_path)
    assert isinstance(done.exception, MasilError)
    assert sentence in str(done.exception)
