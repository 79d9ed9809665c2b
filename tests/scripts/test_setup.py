import importlib.util
import shutil
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

import pytest

from masil.hardware import torch_version

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup.py"


@pytest.fixture
def setup():
    spec = importlib.util.spec_from_file_location("masil_setup", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_old_python_hands_over_to_a_newer_one_on_the_path_or_is_told_what_is_needed(setup, monkeypatch, capsys):
    monkeypatch.setattr(setup.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(setup.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit) as stopped:
        setup.find_python()
    assert stopped.value.code == 2
    assert "masil needs Python 3.11 or newer" in capsys.readouterr().err
    monkeypatch.setattr(setup.shutil, "which", lambda name: sys.executable if name == "python3.11" else None)
    assert setup.find_python() == sys.executable


@pytest.fixture
def installed(setup, tmp_path, monkeypatch):
    """Let the set-up work in a folder of its own; gives what it has told pip to install."""
    asked = []
    monkeypatch.setattr(setup, "VENV", str(tmp_path))
    monkeypatch.setattr(setup.subprocess, "call", lambda _: 0)
    monkeypatch.setattr(setup, "pip", lambda _, *words: asked.append(words[-1]))
    monkeypatch.setattr(setup, "which_torch", lambda _: "torch is 3.0")
    return asked


def test_the_demo_s_set_up_brings_no_tools_and_the_tests_set_up_completes_it(setup, installed, capsys):
    setup.main("demo")
    assert installed == [f"{setup.ROOT}[report]", "miniworld==2.1.0"]
    assert "      torch is 3.0\n" in capsys.readouterr().out
    setup.main("demo")
    assert len(installed) == 2  # nothing to do
    setup.main("dev")
    assert installed[2:] == [f"{setup.ROOT}[dev]", "miniworld==2.1.0"]


def test_the_tests_set_up_serves_the_demo_until_its_files_change(setup, installed, monkeypatch):
    setup.main()
    assert installed == [f"{setup.ROOT}[dev]", "miniworld==2.1.0"]
    setup.main("demo")
    assert len(installed) == 2
    monkeypatch.setattr(setup, "fingerprint", lambda: "changed")
    setup.main("demo")
    assert len(installed) == 4


def test_what_the_tests_need_has_what_the_demo_needs(setup):
    project = tomllib.loads(Path(setup.ROOT, "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    whole = next(line for line in extras["dev"] if line.startswith("masil["))
    assert set(whole[6:-1].split(",")) == set(extras) - {"dev"}
    assert set(setup.EXTRAS.values()) <= set(extras)


def test_an_unknown_mode_is_refused(setup, capsys):
    with pytest.raises(SystemExit):
        setup.main("prod")
    assert "no mode 'prod'; it is one of: demo, dev." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("2.13.0+cpu|CPU", "torch is 2.13.0+cpu, the CPU build; for a GPU, install a torch of your own"),
        ("2.13.0+cu130|CUDA 13.0", "torch is 2.13.0+cu130, the CUDA 13.0 build; the CPU build is far smaller: rm -r"),
    ],
)
def test_a_line_says_which_torch_it_is_and_how_to_get_the_other(setup, monkeypatch, printed, line):
    monkeypatch.setattr(setup.subprocess, "check_output", lambda *_, **__: printed + "\n")
    assert setup.which_torch("bin").startswith(line)


def test_the_build_of_torch_is_asked_of_masil_itself(setup):
    assert setup.which_torch(str(Path(sys.executable).parent)).startswith(f"torch is {torch_version()}, the ")


def test_a_full_disk_is_told_before_the_installation(setup, monkeypatch, capsys):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 2 * 1024**3))
    with pytest.raises(SystemExit):
        setup.check_disk()
    assert "has 2.0 GB free, and the set-up needs 3 GB" in capsys.readouterr().err
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 5 * 1024**3))
    for system, warned in (("linux", True), ("darwin", False)):
        monkeypatch.setattr("sys.platform", system)
        setup.check_disk()
        assert ("5.0 GB are free, which may be too little for torch's CUDA build" in capsys.readouterr().out) is warned


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("OSError: [Errno 28] No space left on device", "disk ran full"),
        ("urllib3.exceptions.NewConnectionError: …", "could not reach the package index"),
        ("ERROR: Could not find a version that satisfies x (from versions: none)", "could not reach the package index"),
        ("error: subprocess-exited-with-error\nboom", "pip failed; its last lines were:\nerror: subprocess"),
    ],
)
def test_failures_of_pip_are_explained(setup, output, sentence):
    assert sentence in setup.explain(output)


def test_a_failing_pip_stops_the_set_up_with_its_last_lines(setup, tmp_path, capsys):
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\necho 'Collecting masil'\necho 'NewConnectionError: unreachable'\nexit 1\n")
    stand_in.chmod(0o755)
    with pytest.raises(SystemExit):
        setup.pip(str(tmp_path), "install", "masil")
    printed = capsys.readouterr()
    assert "Collecting masil" in printed.out
    assert "could not reach the package index" in printed.err
