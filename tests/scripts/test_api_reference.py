import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "api_reference.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("masil_api_reference", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def current(script):
    return script.reference()


def test_the_page_is_as_the_source_says(script, current):
    wrong = script.differences(script.PAGE.read_text(encoding="utf-8"), current)
    assert not wrong, f"{', '.join(wrong)}; write docs/api.md again with: python scripts/api_reference.py"


def test_every_name_of_every_door_has_an_entry(script, current):
    for room in script.ROOMS:
        for name in script.offered(room):
            assert f"\n### [{name}](" in current, f"{room}.{name}"
            assert hasattr(importlib.import_module(room), name)


def test_every_room_that_others_may_use_is_there(script):
    rooms = {f"masil.{each.parent.name}" for each in (script.ROOT / "src" / "masil").glob("*/__init__.py")}
    rooms.add("masil.errors")  # a file
    within = {"masil.cli", "masil.studio", "masil.storage"}  # commands, a page, and the house's own
    assert set(script.ROOMS) - {"masil"} == rooms - within


def test_what_is_out_of_date_is_named(script, current):
    changed = current.replace("Give the share of images whose class is found.", "Give the accuracy.")
    assert script.differences(changed, current) == ["masil.Masil.score has changed"]
    lost = current.replace("### [suggest](../src/masil/errors.py)\n", "")
    assert "masil.errors.suggest is missing" in script.differences(lost, current)
    assert "masil.new is no more" in script.differences(
        current.replace("\n## masil.learner", "\n### [new](x)\n## masil.learner"), current
    )
    assert script.differences(current, current) == []


def test_check_says_so_and_changes_nothing(script, tmp_path, monkeypatch, capsys):
    page = tmp_path / "api.md"
    page.write_text("# API reference\n", encoding="utf-8")
    monkeypatch.setattr(script, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["api_reference.py", "--check"])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    assert stopped.value.code == 1
    assert "masil.errors.lookup is missing" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == "# API reference\n"
    monkeypatch.setattr(sys, "argv", ["api_reference.py"])
    script.main()
    monkeypatch.setattr(sys, "argv", ["api_reference.py", "--check"])
    script.main()


def test_a_signature_reads_as_in_the_source(current):
    assert "known(images: Any) -> np.ndarray[Any, Any]" in current
    assert "- `rejected() -> Tensor`: Say of each image" in current
    field = "    runner_up: Label | None  # None where one class is known\n"  # of a record, with its remark
    assert field in current
