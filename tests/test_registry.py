"""Names that other packages add, by entry points as pip writes them."""

from pathlib import Path

import pytest

from masil.errors import InputError
from masil.registry import Registry


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[object]:
    facts = tmp_path / "elsewhere-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[masil.things]\nlength = builtins:len\nown = builtins:max\nbroken = no_such_module_here:Thing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return Registry("masil.things", {"own": 1})


def test_names_of_other_packages_are_added(table: Registry[object]) -> None:
    assert table["length"] is len
    assert list(table) == ["own", "length", "broken"]
    assert "length" in table
    assert "width" not in table
    assert len(table) == 3
    with pytest.raises(KeyError):
        table["width"]


def test_own_names_stay_own(table: Registry[object]) -> None:
    assert table["own"] == 1


def test_a_package_that_cannot_be_loaded_is_named(table: Registry[object]) -> None:
    with pytest.raises(InputError, match="'broken' comes with the package 'elsewhere', which cannot be loaded: Module"):
        table["broken"]


def test_it_is_a_table_that_can_be_written(table: Registry[object]) -> None:
    table["new"] = 2
    assert table["new"] == 2
    del table["new"]
    assert "new" not in table
