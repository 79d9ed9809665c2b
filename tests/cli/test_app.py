import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from masil import __version__
from masil.cli import app, main


def run_masil(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "masil", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_help_names_the_commands_and_imports_nothing_heavy():
    script = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from masil.cli import app\n"
        "result = CliRunner().invoke(app, ['--help'])\n"
        "assert result.exit_code == 0, result.output\n"
        "assert all(word in result.output for word in ('doctor', 'run', '--install-completion')), result.output\n"
        "heavy = {'torch', 'numpy', 'scipy', 'onnx', 'onnxruntime', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("methods", r"d-cosine +A class is the mean of its activations; the largest cosine wins"),
        ("recipes", r"cifar100-fast +resnet18_cifar, 18 epochs at 16 px, 9 epochs at 24 px"),
        ("backbones", r"resnet20 +A ResNet of basic blocks"),
        ("protocols", r"cub200 +100 base classes of cub200, then 10 × 10 classes of 5 images"),
    ],
)
def test_what_can_be_named_is_listed_with_a_line_on_each(masil, kind, line):
    assert re.search(line, masil("list", kind).stdout)


def test_version():
    assert run_masil("--version").stdout == f"masil {__version__}\n"


def test_an_error_is_one_sentence_and_exit_code_2_and_debug_shows_the_traceback():
    done = run_masil("run", "cifar10")
    assert done.returncode == 2
    assert done.stderr == "masil: There is no protocol called 'cifar10'; did you mean 'cifar100'?\n"
    assert done.stdout == ""
    done = run_masil("--debug", "run", "cifar10")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "UnknownNameError" in done.stderr


@pytest.mark.parametrize(("command", "asked"), [("run", 1), ("predict", 1), ("undo", 0), ("report", 0)])
def test_the_hardware_is_asked_once_and_where_torch_is_used(command, asked, monkeypatch, tmp_path):
    probed = []
    monkeypatch.setattr("masil.hardware.probe", lambda: probed.append(command))
    CliRunner().invoke(app, [command, str(tmp_path / "nowhere"), "--help"])  # options are read afterwards
    assert len(probed) == asked
    monkeypatch.setattr(sys, "argv", ["masil", command, "--help"])
    CliRunner().invoke(app, [command, "--help"])
    assert len(probed) == asked


@pytest.mark.parametrize("command", [("predict", "{0}", "photo.jpg"), ("serve", "{0}", "--port", "0")])
def test_commands_that_answer_import_torch_in_haste(command, tmp_path):
    script = (
        "import gc\n"
        "from typer.testing import CliRunner\n"
        "import masil.hardware\n"
        "masil.hardware.probe = lambda: None\n"
        "from masil.cli import app\n"
        f"done = CliRunner().invoke(app, {[each.format(tmp_path / 'none.masil') for each in command]})\n"
        "assert 'no model' in str(done.exception), done.exception\n"
        "assert gc.get_freeze_count() > 10_000\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_ctrl_c_is_exit_code_130(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["masil.cli.app"], "app", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "masil: stopped.\n"
