import importlib.util
import shutil
import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup.py"


@pytest.fixture
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("masil_setup", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_old_python_is_told_what_is_needed(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(setup.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit) as stopped:
        setup.find_python()
    assert stopped.value.code == 2
    assert "masil needs Python 3.11 or newer" in capsys.readouterr().err


def test_an_old_python_hands_over_to_a_newer_one_on_the_path(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(setup.shutil, "which", lambda name: sys.executable if name == "python3.11" else None)
    assert setup.find_python() == sys.executable


def test_a_full_disk_is_told_before_the_installation(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 2 * 1024**3))
    with pytest.raises(SystemExit):
        setup.check_disk()
    assert "has 2.0 GB free, and the set-up needs 3 GB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("OSError: [Errno 28] No space left on device", "disk ran full"),
        ("urllib3.exceptions.NewConnectionError: …", "could not reach the package index"),
        ("ERROR: Could not find a version that satisfies x (from versions: none)", "could not reach the package index"),
        ("error: subprocess-exited-with-error\nboom", "pip failed; its last lines were:\nerror: subprocess"),
    ],
)
def test_failures_of_pip_are_explained(setup: ModuleType, output: str, sentence: str) -> None:
    assert sentence in setup.explain(output)


def test_a_failing_pip_stops_the_set_up_with_its_last_lines(
    setup: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\necho 'Collecting masil'\necho 'NewConnectionError: unreachable'\nexit 1\n")
    stand_in.chmod(0o755)
    with pytest.raises(SystemExit):
        setup.pip(str(tmp_path), "install", "masil")
    printed = capsys.readouterr()
    assert "Collecting masil" in printed.out
    assert "could not reach the package index" in printed.err
