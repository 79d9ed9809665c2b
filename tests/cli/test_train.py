import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from masil.cli.app import app
from masil.data.characters import CHARACTERS
from masil.errors import InputError, StorageError, UnknownNameError
from masil.training import RECIPES, Recipe, load_trained

TINY = Recipe(name="tiny", backbone="resnet20", width=0.5, stages=((2, 16),), batch=16, compile=False)


def test_an_unknown_recipe_is_suggested() -> None:
    done = CliRunner().invoke(app, ["train", "characters", "-o", "anywhere", "--recipe", "character-fast"])
    assert isinstance(done.exception, UnknownNameError)
    assert "did you mean 'characters-fast'?" in str(done.exception)


def test_a_base_session_is_trained_and_its_folder_can_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, "characters-fast", TINY)
    runner = CliRunner()
    done = runner.invoke(app, ["train", "characters", "-o", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    final = tmp_path / "final"
    assert f"masil run characters --checkpoint {final}" in done.output.replace("\n", " ").replace("  ", " ")
    assert load_trained(final).names == tuple(CHARACTERS[:32])
    assert len(json.loads((tmp_path / "history.json").read_text())) >= 1
    judged = runner.invoke(
        app,
        ["run", "characters", "--method", "d-cosine", "--checkpoint", str(final)],
        catch_exceptions=False,
        env={"COLUMNS": "120"},
    )
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
    done = CliRunner().invoke(app, ["train", protocol, "-o", str(tmp_path)])
    assert isinstance(done.exception, InterruptedError), done.output
    assert asked[0].name.startswith(protocol)
    assert asked[0] is RECIPES[asked[0].name]


def test_a_protocol_without_a_recipe_asks_for_one(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["train", "omniglot", "-o", str(tmp_path)])
    assert isinstance(done.exception, InputError)
    assert "There is no recipe for 'omniglot'; name one of another data set: cifar100-paper" in str(done.exception)


def test_a_folder_without_a_base_session_is_a_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", "characters", "--checkpoint", str(tmp_path)])
    assert isinstance(done.exception, StorageError)
    assert "There is no base session in" in str(done.exception)
