"""Cells on a real dask cluster of this machine, whose workers are killed while they play."""

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

import masil
from masil.benchmark import Entry, bench, read_run, run
from masil.errors import InputError, MasilError

CLUSTER = importlib.import_module("masil.benchmark.cluster")
distributed = pytest.importorskip("distributed", reason="needs dask.distributed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of the cluster's own
    pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="sends a signal to a process on one core"),
]

# A method of a user's own, in a file that no worker has. Its child kills the worker, once.
MODULE = """
    import glob, os, signal, time
    from dataclasses import dataclass
    from masil.methods import DCosine

    @dataclass(kw_only=True)
    class Kills(DCosine):
        once: str = ""
        after: str = ""

        def learn(self, shots):
            while self.after and not glob.glob(self.after):
                time.sleep(0.01)
            try:
                open(self.once, "x").close()
            except FileExistsError:
                return super().learn(shots)
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()  # nobody waits for this child any more
"""


@pytest.fixture
def address(tmp_path):
    """Start a scheduler, which need not have masil."""
    (tmp_path / "empty" / "masil").mkdir(parents=True)
    (tmp_path / "empty" / "masil" / "__init__.py").touch()
    file = tmp_path / "scheduler.json"
    command = ["-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    with subprocess.Popen(
        [sys.executable, *command], env=os.environ | {"PYTHONPATH": str(tmp_path / "empty")}, stderr=subprocess.DEVNULL
    ) as scheduler:
        with distributed.Client(scheduler_file=str(file), set_as_default=False) as client:
            yield client.scheduler.address
        scheduler.kill()


@pytest.fixture
def start(address, tmp_path):
    """Start workers, on one core each, and wait until they have joined."""
    workers = []

    def worker(*options, path=None):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-dashboard", *options]
        known = path or os.pathsep.join(folder for folder in sys.path if folder and "module" not in folder)
        process = subprocess.Popen(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": known}, stderr=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1]),
        )  # fmt: skip
        workers.append(process)
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(len(workers))
        return process

    yield worker
    for started in workers:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@pytest.fixture
def kills(tmp_path, monkeypatch):
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "deadly_method.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path / "module")
    yield importlib.import_module("deadly_method").Kills
    del sys.modules["deadly_method"]


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param([("--no-nanny", "--nthreads", "1")] * 2, id="another-goes-on"),
        pytest.param([("--nthreads", "1")], id="it-is-started-again-without-the-activations"),
    ],
)
def test_a_killed_worker_costs_no_cell(setting, address, start, kills, tmp_path, workers):
    processes = [start(*options) for options in workers]
    deadly = Entry("kills", kills, {"once": str(tmp_path / "killed")})
    grid = bench(setting, [deadly, "d-cosine"], 3, out=tmp_path / "out", workers=address)
    assert (tmp_path / "killed").exists()
    if len(processes) == 2:
        assert sorted(bool(process.poll()) for process in processes) == [False, True]
    assert grid.failed == {}
    assert [len(record.draws) for record in grid.runs] == [3, 3]
    here = run(setting, "d-cosine", 3)
    for record in grid.runs:
        for theirs, ours in zip(record.draws, here.draws, strict=True):
            assert [row.accuracy for row in theirs.sessions] == pytest.approx(
                [row.accuracy for row in ours.sessions], abs=100 / 16 + 1e-6
            )  # a machine of another kind may take an image that is between two classes for the other
        assert {machine["cores"] for machine in record.stamped("machine")} == {1}  # the worker's
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 6


def test_without_a_worker_what_is_finished_is_kept(setting, address, start, kills, tmp_path, monkeypatch):
    out = tmp_path / "out"
    start("--no-nanny", "--nthreads", "2")
    monkeypatch.setattr(CLUSTER, "PATIENCE", 0.2)
    given = {"once": str(tmp_path / "killed"), "after": f"{out}/cells/d-cosine-draw-0-*"}
    with pytest.raises(MasilError, match="has no worker any more .* What is finished is kept; start workers again"):
        bench(setting, ["d-cosine", Entry("kills", kills, given)], 1, out=out, workers=address)
    assert [draw.draw for draw in read_run(out / "d-cosine").draws] == [0]
    assert len(list(out.glob("cells/*.json"))) == 1


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("__init__.py", f'__version__ = "{masil.__version__}"', "has another code of masil .*; install the same masil"),
        ("__init__.py", '__version__ = "0.0.1"', f"has masil 0.0.1, and here is {masil.__version__}; install the same"),
        ("benchmark/cluster.py", "", "cannot load masil .*; install masil"),
    ],
)
def test_a_worker_with_another_masil_is_refused(setting, address, start, tmp_path, file, content, sentence):
    shutil.copytree(Path(masil.__file__).parent, tmp_path / "other" / "masil")
    (tmp_path / "other" / "masil" / file).write_text(content)
    start("--no-nanny", path=str(tmp_path / "other"))
    with pytest.raises(InputError, match=rf"The worker tcp://\S+ {sentence}"):
        bench(setting, ["d-cosine"], 1, out=tmp_path / "out", workers=address)
    with pytest.raises(InputError, match=r"The worker that joined the cluster has another code of masil"):
        CLUSTER.run_task((masil.__version__, "that of the grid"), b"", {})


def test_a_cluster_that_is_not_there_is_a_sentence(setting, address, tmp_path, monkeypatch):
    monkeypatch.setattr(CLUSTER, "CONNECT", 0.2)
    monkeypatch.setattr(CLUSTER, "PATIENCE", 0.2)
    for where, sentence in (
        ("127.0.0.1:9", "No scheduler answers at 127.0.0.1:9 (Timed out trying to connect"),
        ("nowhere", "No scheduler answers at nowhere (missing port number in address"),
        (address, f"The cluster at {address} has no worker; start some with: dask worker {address}"),
    ):
        with pytest.raises(InputError, match=re.escape(sentence)):
            bench(setting, ["d-cosine"], 1, out=tmp_path / "out", workers=where)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"Clusters are an extra of masil; .* pip install -e '.\[cluster\]'"):
        bench(setting, ["d-cosine"], 1, out=tmp_path / "out", workers=address)
    assert not (tmp_path / "out").exists()
