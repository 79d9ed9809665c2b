"""Where CI is set, a skip is a failure, but for what no set-up can bring."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import sys
import pytest

def test_that_is_skipped():
    pytest.skip("needs a package that the set-up forgot.")

@pytest.mark.skipif(sys.maxsize > 0, reason="there is a CUDA device")
def test_that_may_be_skipped():
    pass

@pytest.fixture
def browser():
    pytest.skip("there is no Chromium")

def test_whose_fixture_skips(browser):
    pass

@pytest.mark.xfail(reason="known")
def test_that_fails_as_expected():
    assert False

def test_with_data(data_folder):
    pass
"""
WHOLE_FILE = 'import pytest\n\npytest.importorskip("no_such_package_at_all", reason="needs the extra")\n'


@pytest.mark.parametrize(
    ("ci", "source", "outcome"),
    [
        ({}, TESTS, "4 skipped, 1 xfailed"),
        ({"CI": "1"}, TESTS, "1 failed, 2 skipped, 1 xfailed, 1 error"),
        ({}, WHOLE_FILE, "1 skipped"),
        ({"CI": "1"}, WHOLE_FILE, "1 error"),
    ],
)
def test_a_skip_fails_where_ci_is_set(tmp_path: Path, ci: dict[str, str], source: str, outcome: str) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(source)
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "MASIL_DATA")}
    plain = ["-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(tmp_path), str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *plain]
    done = subprocess.run(command, env=kept | ci, capture_output=True, text=True)
    assert outcome in done.stdout.splitlines()[-1], done.stdout + done.stderr
    assert ("Where CI is set, this is a failure: let the set-up bring" in done.stdout) == bool(ci)
