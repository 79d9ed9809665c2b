"""What every test shares: where real data are, and a cache folder of the test run's own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Speed is judged in benchmarks/, not by a busy test machine. Where CI is set, examples are the same every time, so that
# a change lands or fails for what it is; elsewhere every run tries new ones.
settings.register_profile("masil", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("masil")


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
