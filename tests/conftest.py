"""What every test shares: where real data are, a cache folder of the test run's own, and what may be skipped."""

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Speed is judged in benchmarks/, not by a busy test machine. Where CI is set, examples are the same every time, so that
# a change lands or fails for what it is; elsewhere every run tries new ones.
settings.register_profile("masil", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("masil")

# Where CI is set, its set-up brings what tests need, so a skip is a failure, but for what it cannot bring.
MAY_BE_MISSING = re.compile(
    "needs real data sets; set MASIL_DATA"  # their licences keep them out of the repository
    "|miniimagenet is not in the folder that MASIL_DATA names"  # nobody offers it for download
    "|weights/, which the source distribution leaves out"
    "|there is a CUDA device"  # the test is about a machine without
    "|only where there is more than AVX2"
    "|this file system takes the two names for one"
    "|on Windows|POSIX|kill -9|sends a signal"
)


@pytest.fixture(scope="session")
def data_folder() -> str:
    """The folder of real data sets that MASIL_DATA names; the test is skipped where there is none."""
    folder = os.environ.get("MASIL_DATA")
    if not folder:
        pytest.skip("needs real data sets; set MASIL_DATA to the folder that holds them")
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests away from the user's cache; one cache folder serves a whole test run."""
    monkeypatch.setenv("MASIL_CACHE", str(_cache(tmp_path_factory)))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute on one thread: only then does a repeated call add in the same order, and give the same bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _cache(factory: pytest.TempPathFactory) -> Path:
    folder = factory.getbasetemp() / "masil-cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test fail that was skipped without a good reason."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let a file fail that was skipped as a whole without a good reason."""
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if "CI" not in os.environ or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not MAY_BE_MISSING.search(reason):
        report.outcome = "failed"
        report.longrepr = (
            f"{reason.rstrip('.')}. Where CI is set, this is a failure: let the set-up bring what is missing, or put "
            "the reason on the list in tests/conftest.py."
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test, so that no process waits for another at the end."""
    items.sort(key=lambda item: "test_tutorial" not in item.nodeid)
