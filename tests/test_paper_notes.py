"""docs/paper-notes.md: every equation of the paper, with a file, a test and a command that are really there."""

import re
from pathlib import Path

import pytest

from masil.cli import app
from masil.training import RECIPES

ROOT = Path(__file__).parents[1]
TABLE = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "paper-notes.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| equation", "| ---"))
]
LABELS = """obj def:inj NC1–NC4 eqn:ds ws loss nmf cb del inf hi weights ŵ^{1/L} add_loss mem final_loss concept cosine
Avg h_k·w_k'"""


def test_every_equation_has_a_row() -> None:
    named = " ".join(row[0].replace(",", "") for row in TABLE)
    assert named.split() == LABELS.split()


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_its_file_test_and_command_are_there(row: list[str]) -> None:
    _, _, places, tests, command = row
    for file in re.findall(r"`(\S+\.py)`", places):
        assert (ROOT / "src" / "masil" / file).is_file(), file
    found = ""
    for file in re.findall(r"`(\S+\.py)`", tests):
        found += (ROOT / "tests" / file).read_text(encoding="utf-8")
    names = re.findall(r"`(test_\w+)`", tests)
    assert names
    for name in names:
        assert f"def {name}(" in found, name
    (text,) = re.findall(r"`([^`]+)`", command)
    if text.startswith("masil "):
        assert text.split()[1] in {entry.name or entry.callback.__name__ for entry in app.registered_commands}
    else:
        assert (ROOT / text.split()[1]).is_file()
    for recipe in re.findall(r"--recipe (\S+)", text):
        assert recipe in RECIPES
