"""A grid of methods and draws, played by the threads of joblib; a cell that fails costs only itself.

Each thread plays its cells in a child process, or has a worker of a dask cluster do so (see `cluster`).
`run` is a grid of one method, played in this process.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from traceback import format_exc
from typing import Any, final

import joblib

from masil.benchmark.cell import Cell, CellKey, CellRecord, Entry, Factory, FittedCache, Parameters, cells, draw_name
from masil.benchmark.cluster import Cluster, ClusterLostError, TaskFailedError, children, open_cluster, pack
from masil.benchmark.gather import RunView
from masil.benchmark.plan import refused, settings
from masil.benchmark.play import DrawData, SessionResult, draw_data, shots_checksum
from masil.benchmark.provenance import command, own_source
from masil.benchmark.record import RunRecord
from masil.benchmark.setting import Draws, Setting, prepare
from masil.errors import InputError, MasilError
from masil.hardware import usable_cores
from masil.progress import track
from masil.storage import write_bytes
from masil.training import Recipe
from masil.training import recipe as find_recipe

LOG = logging.getLogger(__name__)

Watch = Callable[[int | None, SessionResult], None]
Outcome = CellRecord | MasilError


@final
@dataclass(frozen=True)
class Grid:
    """What became of a grid: a run of every method that has a finished cell, and why other cells failed."""

    runs: list[RunRecord]
    failed: dict[CellKey, str]


def run(
    protocol: str | Setting,
    method: str | Factory | Entry = "masil",
    draws: Draws = None,
    *,
    seed: int = 0,
    parameters: Parameters | None = None,
    out: Path | str | None = None,
    watch: Watch | None = None,
) -> RunRecord:
    """Judge a method by a protocol: its name, or what `prepare` made of it with a backbone and data of one's choice.

    `draws` are how many (0, 1, …) or which; without any, the field's standard shots. `parameters` are the method's own.
    With `out`, every finished draw is kept there at once and never played again. `watch` is told every session. A
    method of one's own is given as its class, or as an `Entry` under another name.
    """
    setting = protocol if isinstance(protocol, Setting) else prepare(protocol)
    entry = method if isinstance(method, Entry) else Entry.of(method, parameters)
    folder = None if out is None else Path(out)
    shots = _shots(setting, draws)
    with _in_a_sentence(f"'{entry.name}' cannot be made", folder, entry.name):
        view = _view(setting, entry, shots, seed=seed, command=command(), folder=folder)
    missing = view.missing
    data, fitted = _data([(view, cell) for cell in missing]), FittedCache()
    for cell in missing:
        told = None if watch is None else partial(watch, cell.draw)
        with _in_a_sentence("'{}' failed on {}".format(*_place(cell)), folder, _failure_name(cell)):
            record = cell.play(data[id(view.setting), cell.draw], fitted, told)
        view.add(cell, record)
        LOG.info("%s, %s: played.", *_place(cell))
    return view.written or view.write()


def bench(
    protocol: str | Setting,
    methods: Iterable[str | Factory | Entry],
    draws: Draws = 5,
    *,
    out: Path | str,
    seed: int = 0,
    recipe: str | Recipe | None = None,
    workers: int | str | None = None,
) -> Grid:
    """Play every method on every draw, and give a record for each method, also kept as `out`/METHOD/run.json.

    A method with parameters or a name of its own is an `Entry`. Finished cells are in `out`/cells and are played again
    only where something changed that they follow from. A cell that raises or dies is logged and left out; a later call
    tries it again. With `recipe`, methods whose base session differs train their own; without, they are given the
    shared backbone. `workers` are how many cells are played at a time on this machine, else one a core, or the address
    of a dask scheduler, whose cluster plays them instead; cells come back from there and need no shared disk.
    """
    entries = [method if isinstance(method, Entry) else Entry.of(method) for method in methods]
    if not entries:
        raise InputError("A benchmark needs at least one method.")
    if isinstance(workers, int) and workers < 1:
        raise InputError(f"{workers} jobs were asked for; give at least 1.")
    usual = find_recipe(recipe) if isinstance(recipe, str) else recipe
    setting = protocol if isinstance(protocol, Setting) else prepare(protocol)
    folder, shots = Path(out), _shots(setting, draws)
    shared: dict[str, Any] = {"seed": seed, "command": command(), "folder": folder, "threads": _threads(workers)}
    views: list[RunView] = []
    failed: dict[CellKey, str] = {}
    # Workers of a cluster may not have methods that stand in a file of their own.
    files = {own_source(entry.factory) for entry in entries if "." not in entry.factory.__module__} - {None}
    with open_cluster(workers, filter(None, files)) if isinstance(workers, str) else nullcontext() as cluster:
        reasons = refused(setting, entries, usual)
        entries = [entry for entry in entries if entry.name not in reasons]
        for name, sentence in reasons.items():
            failed |= {(name, draw): sentence for draw in shots}
            LOG.warning("'%s' is not played: %s", name, sentence)
        theirs = settings(setting, entries, usual, folder, jobs=workers if isinstance(workers, int) else None)
        for entry, its_setting in zip(entries, theirs, strict=True):
            try:
                views.append(_view(its_setting, entry, shots, **shared))
            except MasilError:
                raise
            except Exception as error:  # noqa: BLE001  a method of somebody else's cannot be made: the others can
                failed |= {(entry.name, draw): f"{type(error).__name__}: {error}" for draw in shots}
                LOG.warning("'%s' cannot be made: %s: %s", entry.name, type(error).__name__, error)
        for view, cell, outcome in _play(views, workers, cluster):
            if isinstance(outcome, CellRecord):
                view.add(cell, outcome)
                LOG.info("%s, %s: played.", *_place(cell))
                continue
            failed[cell.key] = view.failed[str(cell.draw)] = _sentence(outcome, folder, _failure_name(cell))
            view.written = None  # it does not say yet what failed
            LOG.warning("'%s' failed on %s: %s", *_place(cell), failed[cell.key])
    return Grid([view.written or view.write() for view in views if view.known], failed)


def _view(setting: Setting, entry: Entry, shots: Mapping[int | None, str], **shared: Any) -> RunView:
    """Make the run of a method in a setting; one that sees images has their activations of one view."""
    if setting.views > 1 and entry.make(setting.protocol.dataset).sees == "images":
        LOG.info("'%s' sees the images, so it has their activations of one view, not of %d.", entry.name, setting.views)
        setting = setting.single
    return RunView(setting, list(cells(setting, entry, shots, **shared)), shared["folder"])


def _shots(setting: Setting, draws: Draws) -> dict[int | None, str]:
    """Give the checksums of the shots, by draw; they are the same for every method."""
    return {draw: shots_checksum(setting, draw) for draw in setting.draws(draws)}


def _play(
    views: Iterable[RunView], workers: int | str | None, cluster: Cluster | None
) -> Iterator[tuple[RunView, Cell, Outcome]]:
    """Yield what becomes of every missing cell, as it becomes known."""
    missing = [(view, cell) for view in views for cell in view.missing]
    data = _data(missing)
    # A thread for each cell that a cluster is to play: dask knows how many its workers take at a time.
    threads = workers if isinstance(workers, int) else usable_cores() if cluster is None else max(1, len(missing))
    parallel = joblib.Parallel(threads, backend="threading", batch_size=1, return_as="generator_unordered")
    lost: ClusterLostError | None = None
    try:
        outcomes = parallel(
            joblib.delayed(_play_cell)(number, cell, data[id(view.setting), cell.draw], cluster)
            for number, (view, cell) in enumerate(missing)
        )
        for number, outcome in track(outcomes, "Playing", len(missing)):
            view, cell = missing[number]
            if isinstance(outcome, ClusterLostError):
                lost = outcome
            else:
                yield view, cell, outcome
    finally:
        children().end()
    if lost is not None:
        raise lost


def _play_cell(number: int, cell: Cell, data: DrawData, cluster: Cluster | None) -> tuple[int, Outcome]:
    """Be one of joblib's threads: have a child here or on the cluster play a cell, and say what became of it."""
    play = children().run if cluster is None else cluster.play
    parts = {name: part for name, part in vars(data).items() if name != "images" or cell.method.sees == "images"}
    try:
        return number, play(pack(_play_here, cell), parts)
    except MasilError as error:
        return number, error


def _play_here(cell: Cell, **parts: Any) -> CellRecord:
    """Be the child: play a cell, keeping the base session for the next one."""
    return cell.play(DrawData(**parts), _fitted_here())


@cache
def _fitted_here() -> FittedCache:
    """Give the one cache of this process."""
    return FittedCache()


def _data(missing: Sequence[tuple[RunView, Cell]]) -> dict[tuple[int, int | None], DrawData]:
    """Make every activation that the cells need, once, before the first is played; by setting and draw."""
    data: dict[tuple[int, int | None], DrawData] = {}
    for setting in {id(view.setting): view.setting for view, _ in missing}.values():
        LOG.info("Activations of %s through %s.", setting.dataset.name, setting.backbone.name)
        draws = dict.fromkeys(cell.draw for view, cell in missing if view.setting is setting)
        data |= {(id(setting), draw): part for draw, part in draw_data(setting, list(draws)).items()}
    return data


def _place(cell: Cell) -> tuple[str, str]:
    return cell.entry.name, "the standard shots" if cell.draw is None else f"draw {cell.draw}"


def _failure_name(cell: Cell) -> str:
    return f"{cell.entry.name}-{draw_name(cell.draw)}"


def _sentence(failure: MasilError, folder: Path, name: str) -> str:
    """Say what went wrong; a traceback, where there is one, goes into a file of the folder."""
    if not isinstance(failure, TaskFailedError) or not failure.trace:
        return str(failure)
    file = folder / "failures" / f"{name}.txt"
    write_bytes(file, failure.trace.encode())
    return f"{failure} (traceback: {file})"


@contextmanager
def _in_a_sentence(what: str, folder: Path | None, name: str) -> Iterator[None]:
    """Turn an error in somebody's method into a sentence; without a folder, the traceback is in --debug alone."""
    try:
        yield
    except MasilError:
        raise
    except Exception as error:
        failure = TaskFailedError(f"{type(error).__name__}: {error}", format_exc())
        said = f"{failure} (traceback: with --out or --debug)" if folder is None else _sentence(failure, folder, name)
        raise TaskFailedError(f"{what}: {said}", failure.trace) from error


def _threads(workers: int | str | None) -> int | None:
    """Share the cores of this machine among its cells; on a cluster, and where the user has chosen, leave it alone."""
    if isinstance(workers, str) or "OMP_NUM_THREADS" in os.environ:
        return None
    return max(1, usable_cores() // (workers or usable_cores()))
