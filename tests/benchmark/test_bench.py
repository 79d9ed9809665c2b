import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from masil.benchmark import Entry, bench, read_run, run
from masil.benchmark.cluster import Children, children
from masil.benchmark.run_file import write_sealed
from masil.errors import InputError, StorageError
from masil.methods import Teen

FEWEST = 16  # images that a session is tested on: four of each base class
GRID = importlib.import_module("masil.benchmark.grid")

# Methods of a user's own, in a module of their own: children and clusters find it on the path.
MODULE = """
    import os
    from dataclasses import dataclass
    from masil.methods import DCosine

    class Dies(DCosine):
        def learn(self, shots):
            os._exit(7)

    @dataclass(kw_only=True)
    class Fails(DCosine):
        marker: str = "/"

        def learn(self, shots):
            if int(shots.labels.min()) == 4:  # the first session of a draw
                if os.path.exists(self.marker):
                    raise RuntimeError("the moon is full")
                open(self.marker, "w").close()
            super().learn(shots)

    class Unmade(DCosine):
        def __init__(self):
            raise RuntimeError("no moon at all")
"""
SCRIPT = """
    import signal
    import time
    from pathlib import Path

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

    from conftest import SHAPE, Shelf, squares
    from masil.backbones import create
    from masil.benchmark import Entry, Setting, bench
    from masil.methods import DCosine

    CELLS = Path("out/cells")

    class Slow(DCosine):  # from the second cell on
        def learn(self, shots):
            if CELLS.exists():
                Path("under way").touch()
                time.sleep(60)

    setting = Setting(SHAPE, squares(), create("resnet20", width=0.5), "none", device="cpu", store=Shelf())
    bench(setting, [Entry("slow", Slow)], 4, out="out", workers=1)
"""


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")
    (folder / "bad_methods.py").write_text(textwrap.dedent(MODULE))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        yield importlib.import_module("bad_methods")
        del sys.modules["bad_methods"]


@pytest.fixture(autouse=True, scope="module")
def _children(bad):
    """Let one test's children serve the next: starting one takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Children, "end", lambda self: None)
        yield
    children().end()


def in_this_process(_, task, arrays):
    """Play a packed cell without a child, so that what a test has patched holds for it."""
    function, arguments = pickle.loads(task)
    return function(*arguments, **arrays)


def assert_same_answers(one, other):
    """A child may have other threads, and an image between two classes another answer, but no more than one."""
    both = [[[row.accuracy for row in draw.sessions] for draw in record.draws] for record in (one, other)]
    np.testing.assert_allclose(*both, atol=100 / FEWEST + 1e-6)


def test_a_grid_finds_what_single_runs_find(setting, tmp_path):
    grid = bench(setting, ["d-cosine", "fecam"], 2, out=tmp_path, workers=2)
    assert [record.method for record in grid.runs] == ["d-cosine", "fecam"]
    for record in grid.runs:
        assert_same_answers(record, run(setting, record.method, 2))
        assert read_run(tmp_path / record.method) == record
    assert setting.store.asked[:4] == [24, 32, 12, 12]  # every activation once, before the first cell


def test_shots_are_hashed_once_for_all_methods(setting, tmp_path, monkeypatch):
    hashed = []
    monkeypatch.setattr(GRID, "shots_checksum", lambda _, draw: hashed.append(draw) or "0a")
    bench(setting, ["d-cosine", "fecam"], 2, out=tmp_path, workers=1)
    assert hashed == [0, 1]


def test_a_cell_that_dies_costs_only_itself_and_is_all_that_is_tried_again(setting, bad, tmp_path, caplog):
    table = [Entry("dies", bad.Dies), "d-cosine", Entry("raises", bad.Fails), Entry("unmade", bad.Unmade)]
    grid = bench(setting, table, 1, out=tmp_path, workers=2)
    assert [record.method for record in grid.runs] == ["d-cosine"]
    assert grid.failed == {
        ("dies", 0): "its process ended with code 7",
        ("raises", 0): f"RuntimeError: the moon is full (traceback: {tmp_path / 'failures' / 'raises-draw-0.txt'})",
        ("unmade", 0): "RuntimeError: no moon at all",
    }
    assert 'raise RuntimeError("the moon is full")' in (tmp_path / "failures" / "raises-draw-0.txt").read_text()
    (kept,) = (tmp_path / "cells").iterdir()
    written = kept.stat().st_mtime_ns

    given = {"marker": str(tmp_path / "marker")}
    one, other = bench(setting, [Entry("dies", bad.Fails, given), "d-cosine"], 2, out=tmp_path, workers=1).runs
    assert [draw.draw for draw in one.draws] == [0]
    assert [draw.draw for draw in other.draws] == [0, 1]
    assert kept.stat().st_mtime_ns == written
    assert one.given == one.parameters == given
    assert list(one.failed) == ["1"]
    assert one.failed["1"].startswith("RuntimeError: the moon is full")
    assert (one.asked, one.missing, other.missing) == ((0, 1), (1,), ())
    assert [read_run(file) for file in sorted(tmp_path.glob("d*/run.json"))] == [other, one]
    assert "'dies' failed on draw 1: RuntimeError: the moon is full" in caplog.text


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_stops_at_once_and_leaves_no_process(bad, tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    path = os.pathsep.join([os.environ["PYTHONPATH"], str(Path(__file__).parent)])
    script = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE,
        start_new_session=True, text=True,
    )  # fmt: skip
    try:
        cells = tmp_path / "out" / "cells"
        for _ in range(4000):
            if (tmp_path / "under way").exists() or script.poll() is not None:
                break
            time.sleep(0.05)
        os.killpg(script.pid, signal.SIGINT)
        _, said = script.communicate(timeout=60)
    finally:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
            script.communicate()
    assert script.returncode in (130, -signal.SIGINT), said
    assert "KeyboardInterrupt" in said
    assert [file.name[:12] for file in cells.iterdir()] == ["slow-draw-0-"]
    with pytest.raises(ProcessLookupError):
        os.killpg(script.pid, 0)


def test_cells_are_used_again_only_where_nothing_changed(setting, tmp_path, monkeypatch):
    def played(**given):
        before = set((tmp_path / "cells").glob("*.json"))
        bench(setting, [Entry.of("teen", given)], 1, out=tmp_path, workers=1)
        return [file.name[:12] for file in set((tmp_path / "cells").glob("*.json")) - before]

    assert played() == ["teen-draw-0-"]
    assert played() == []
    assert played(a=0.25) == ["teen-draw-0-"]
    assert played(a=0.25) == played() == []
    monkeypatch.setitem(Teen.__init__.__kwdefaults__, "temperature", 8.0)  # a default of the method changes
    assert played() == ["teen-draw-0-"]
    assert read_run(tmp_path / "teen").parameters == {"a": 0.5, "temperature": 8.0}
    monkeypatch.setattr("masil.__version__", "9.9")
    assert played() == ["teen-draw-0-"]
    monkeypatch.setattr("masil.benchmark.cell.package_code", lambda: "other code")
    monkeypatch.setattr(Children, "run", in_this_process)
    assert played() == ["teen-draw-0-"]
    assert {path.parent.name[:4] for path in tmp_path.glob("*/run.json")} == {"teen"}
    assert len(list(tmp_path.glob("*/run.json"))) == 2  # with and without a chosen share


def test_a_later_grid_adds_to_the_folder(setting, tmp_path):
    (first,) = bench(setting, ["d-cosine"], [1], out=tmp_path, workers=1).runs
    bench(setting, ["d-cosine"], 3, out=tmp_path, workers=1)
    bench(setting, ["teen"], 1, out=tmp_path, workers=1)
    (fewer,) = bench(setting, ["d-cosine"], 1, out=tmp_path, workers=1).runs
    assert [draw.draw for draw in fewer.draws] == [0, 1, 2]
    assert read_run(tmp_path / "d-cosine") == fewer
    assert fewer.draws[1] == first.draws[0]  # its stamp is that of its own call
    assert fewer.draws[0].stamp.started >= first.draws[0].stamp.started
    assert first.draws[0].stamp.peak_bytes > 0
    assert [draw.draw for draw in read_run(tmp_path / "teen").draws] == [0]
    inputs = json.loads(min((tmp_path / "cells").glob("*.json")).read_text())["inputs"]
    assert {"parameters", "version", "code", "weights", "data", "shots", "draw", "seed"} <= inputs.keys()


def test_standard_shots_and_draws_are_not_mixed(with_standard_shots, tmp_path):
    bench(with_standard_shots, ["d-cosine"], [None], out=tmp_path, workers=1)
    with pytest.raises(StorageError, match="holds another run: standard shots in one of the two, draws in the other"):
        bench(with_standard_shots, ["d-cosine"], 2, out=tmp_path, workers=1)


def test_code_that_changes_under_a_grid_is_refused(setting, tmp_path, monkeypatch):
    monkeypatch.setattr("masil.benchmark.cell.package_code", lambda: "what the parent saw")  # children see the truth
    grid = bench(setting, ["d-cosine"], 1, out=tmp_path, workers=1)
    assert grid.runs == []
    assert "The code was changed while the grid was playing" in grid.failed["d-cosine", 0]


def test_a_cell_of_an_older_version_is_passed_over_and_one_changed_by_hand_refused(setting, tmp_path, caplog):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "d-cosine-draw-0.json").write_text('{"format": "masil-cell", "version": 1}')
    bench(setting, ["d-cosine"], 1, out=tmp_path, workers=1)
    assert "1 cells in" in caplog.text
    assert "of an older masil, which noted no parameters; left out" in caplog.text
    (file,) = (tmp_path / "cells").glob("d-cosine-draw-0-*.json")
    value = json.loads(file.read_text())
    for changed, sentence in (
        ({**value, "given": {"a": 1}}, "was changed after it was written: its checksum does not fit"),
        ({key: value[key] for key in value if key != "checksum"}, "its checksum is missing"),
    ):
        file.write_text(json.dumps(changed))
        with pytest.raises(StorageError, match=sentence):
            bench(setting, ["d-cosine"], 1, out=tmp_path, workers=1)
    write_sealed(file, {key: value[key] for key in value if key not in ("cosines", "checksum")})
    with pytest.raises(StorageError, match="by hand: 'cosines' is missing"):
        bench(setting, ["d-cosine"], 1, out=tmp_path, workers=1)


def test_parameters_are_those_that_the_method_has(setting):
    with pytest.raises(InputError, match="Method 'teen' has no parameter 'temprature'; did you mean 'temperature'?"):
        Entry.of("teen", {"temprature": 1.0})
    with pytest.raises(InputError, match="what is to differ from its defaults as `parameters`"):
        Entry.of(partial(Teen, a=0.1))
