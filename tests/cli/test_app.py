import subprocess
import sys

import pytest
from typer.testing import CliRunner

from masil import __version__
from masil.cli import main
from masil.cli.app import app


def masil(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "masil", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_help_names_the_commands_and_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from masil.cli.app import app\n"
        "result = CliRunner().invoke(app, ['--help'])\n"
        "assert result.exit_code == 0, result.output\n"
        "assert all(word in result.output for word in ('doctor', 'run', '--install-completion')), result.output\n"
        "heavy = {'torch', 'numpy', 'scipy', 'onnx', 'onnxruntime', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_version() -> None:
    assert masil("--version").stdout == f"masil {__version__}\n"


def test_an_error_is_one_sentence_and_exit_code_2() -> None:
    done = masil("run", "cifar10")
    assert done.returncode == 2
    assert done.stderr == "masil: There is no protocol called 'cifar10'; did you mean 'cifar100'?\n"
    assert done.stdout == ""


def test_debug_shows_the_traceback() -> None:
    done = masil("--debug", "run", "cifar10")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "UnknownNameError" in done.stderr


@pytest.mark.parametrize(("command", "asked"), [("run", 1), ("predict", 1), ("undo", 0), ("report", 0)])
def test_the_hardware_is_asked_once_and_where_torch_is_used(command: str, asked: int, monkeypatch, tmp_path) -> None:
    probed = []
    monkeypatch.setattr("masil.hardware.probe", lambda: probed.append(command))
    CliRunner().invoke(app, [command, str(tmp_path / "nowhere"), "--help"])  # options are read afterwards
    assert len(probed) == asked
    monkeypatch.setattr(sys, "argv", ["masil", command, "--help"])
    CliRunner().invoke(app, [command, "--help"])
    assert len(probed) == asked


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("masil.cli.app.app", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "masil: stopped.\n"
