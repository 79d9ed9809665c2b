"""What is published works away from the repository: the wheel where it is installed, the sdist by its own tests."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from masil import __version__

ROOT = Path(__file__).parents[1]
IN_SDIST = {
    "src", "tests", "docs", "examples", "results", "scripts", "benchmarks", "README.md", "CHANGELOG.md",
    "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO", "constraints.txt", "pyproject.toml", ".gitignore",
}  # fmt: skip
USE = """
import sys, torch, masil
assert masil.__file__.startswith(sys.prefix), masil.__file__
generator = torch.Generator().manual_seed(0)
centres = 3 * torch.rand(5, 32, generator=generator)
photos = lambda rows: centres[rows] + torch.rand(len(rows), 32, generator=generator)
model = masil.Masil(backbone=None, concepts=4)
model.fit(photos([0, 1, 2, 3] * 10), list("abcd") * 10)
model.learn(photos([4] * 5), ["e"] * 5)
print(*model.predict(photos([4, 0])))
"""


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MASIL_DATA")}
    done = subprocess.run(command, cwd=folder, env=kept | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, folder=ROOT)
    return folder


def test_the_wheel_teaches_and_recognises_in_an_environment_of_its_own(built: Path, tmp_path: Path) -> None:
    wheel = built / f"masil-{__version__}-py3-none-any.whl"
    held = set(zipfile.ZipFile(wheel).namelist())
    parts = (
        "py.typed",
        "report/report.css",
        "report/page.html.jinja",
        "report/table.html.jinja",
        "studio/static/index.html",
    )
    assert {f"masil/{part}" for part in parts} <= held
    assert {name.partition("/")[0] for name in held} == {"masil", f"masil-{__version__}.dist-info"}
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", folder=tmp_path)
    programs = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    where = "import sysconfig; print(sysconfig.get_path('purelib'), end='')"
    own = Path(run(programs / "python", "-c", where, folder=tmp_path))
    (own / "packages.pth").write_text(sysconfig.get_path("purelib"))  # torch and the rest, but no editable masil
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "--disable-pip-version-check")
    run(*pip, "install", "--no-deps", "--no-index", "--no-compile", "--ignore-installed", wheel, folder=tmp_path)
    assert run(programs / "masil", "--version", folder=tmp_path) == f"masil {__version__}\n"
    assert run(programs / "python", "-c", USE, folder=tmp_path) == "e a\n"


def test_the_sdist_has_what_its_own_tests_need(built: Path, tmp_path: Path) -> None:
    with tarfile.open(built / f"masil-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"masil-{__version__}"
    assert {place.name for place in unpacked.iterdir()} == IN_SDIST
    kinds = {"src": "*", "tests": "*.py", "docs": "*", "results": "*.json", "scripts": "*.py", "benchmarks": "*.py"}
    for folder, kind in kinds.items():
        assert files(unpacked, folder, kind) == files(ROOT, folder, kind)
    quick = ("tests/test_errors.py", "tests/scripts", "tests/test_weights.py", "tests/test_paper_notes.py")
    said = run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *quick,
        folder=unpacked, PYTHONPATH=str(unpacked / "src"), CI="1",
    )  # fmt: skip
    assert "passed" in said
    assert "weights/, which the source distribution leaves out" in said


def files(top: Path, folder: str, kind: str) -> set[str]:
    found = (path.relative_to(top) for path in (top / folder).rglob(kind) if path.is_file())
    return {str(path) for path in found if "__pycache__" not in path.parts}
