"""`masil reproduce` on the characters that come with the package, with base sessions of two epochs."""

from dataclasses import replace

import pytest

from masil.benchmark import PARTS
from masil.errors import DataError, UnknownNameError
from masil.training import RECIPES

pytestmark = pytest.mark.filterwarnings("ignore::masil.concepts.NMFConvergenceWarning")


@pytest.fixture
def _short(monkeypatch, tmp_path):
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path / "cache"))
    for name in ("characters-paper-quick", "characters-fast"):
        tiny = replace(RECIPES[name], backbone="resnet20", width=0.5, stages=((1, 8),), batch=256)
        monkeypatch.setitem(RECIPES, name, tiny)


@pytest.mark.usefixtures("_short")
def test_one_command_trains_plays_and_writes_the_page(masil, tmp_path, monkeypatch):
    monkeypatch.setitem(PARTS, "characters", (("characters",), ("nc-fscil", "masil-as-written")))  # type: ignore[arg-type]
    out = tmp_path / "out"
    asked = ("reproduce", "characters", "-o", out, "--draws", 2, "-j", 1, "--device", "cpu")
    planned = masil(*asked, "--plan")
    assert "0 of 1" in planned.output
    assert "more on this machine, before anything is played" in planned.output
    assert not (out / "base").exists()
    done = masil(*asked)
    assert done.exit_code == 0, done.output
    page = (out / "what-replicates.md").read_text(encoding="utf-8")
    assert "MASIL is ahead of NC-FSCIL in the last session" in page
    assert "characters-paper-quick+nc-fscil" in page
    assert (out / "figures" / "characters-cosines.svg").is_file()
    again = masil(*asked)
    assert "1 of 1  done" in again.output
    assert (out / "what-replicates.md").read_text(encoding="utf-8") == page


def test_an_unknown_part_and_missing_images_are_a_sentence(masil, tmp_path):
    with pytest.raises(UnknownNameError, match=r"did you mean 'table2'\?"):
        masil("reproduce", "tabel2", "-o", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="miniImageNet"):
        masil("reproduce", "table1", "-o", tmp_path / "out", "--data", tmp_path / "empty")
    assert not (tmp_path / "out").exists()
