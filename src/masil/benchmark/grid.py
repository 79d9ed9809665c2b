"""A grid of methods and draws. joblib deals its cells out, and a cell that fails costs only itself.

joblib's engine is whatever `joblib.parallel_config` names around the call: threads by default, dask.distributed or Ray
on a cluster. Each worker plays its cells in a child process (see `child`). `run` plays one method in this process.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import joblib
from joblib.parallel import get_active_backend

from masil.benchmark.cell import Cell, CellRecord, Entry, Factory, FittedCache, Place, cells, draw_name, finished
from masil.benchmark.child import TaskFailedError, end_children, in_child, pack
from masil.benchmark.gather import gather, refuse_other_settings, view_folder, with_earlier
from masil.benchmark.material import DrawData, draw_data
from masil.benchmark.play import SessionResult
from masil.benchmark.provenance import command
from masil.benchmark.record import RunRecord
from masil.benchmark.run_file import sealed, write_run
from masil.benchmark.setting import Draws, Setting, prepare, with_base
from masil.errors import InputError, MasilError
from masil.files import write_bytes, write_json
from masil.hardware import usable_cores
from masil.methods import trains_its_own_base
from masil.progress import bar
from masil.protocol import Protocol
from masil.training import Recipe
from masil.training import recipe as recipe_called

LOG = logging.getLogger(__name__)
ROUNDS = 3  # how often cells are dealt out again whose worker was lost with its machine

Failure = Callable[[str, int | None, str], None]
Watch = Callable[[int | None, SessionResult], None]
Parameters = Mapping[str, Any]
Outcome = CellRecord | TaskFailedError


def run(
    protocol: str | Setting,
    method: str | Factory = "masil",
    draws: Draws = None,
    *,
    name: str | None = None,
    seed: int = 0,
    parameters: Parameters | None = None,
    out: Path | str | None = None,
    watch: Watch | None = None,
) -> RunRecord:
    """Judge a method by a protocol: its name, or what `prepare` made of it with a backbone and data of one's choice.

    `draws` are how many (0, 1, …) or which; without any, the field's standard shots. `parameters` are the method's own.
    With `out`, every finished draw is kept there at once and never played again. `watch` is told every session. A
    method of one's own is given as its class, which takes `total` and `seed`; `name` is what tables call it.
    """
    setting = protocol if isinstance(protocol, Setting) else prepare(protocol)
    entry = Entry.of(method, parameters, name)
    folder = None if out is None else Path(out)
    row = _row(setting, entry, draws, seed, folder, None)
    known = {cell.draw: finished(cell) for cell in row}
    missing = [draw for draw, record in known.items() if record is None]
    data = draw_data(setting, missing, images=row[0].method.sees == "images")
    fitted = FittedCache()
    for cell in row:
        if known[cell.draw] is None:
            told = None if watch is None else _with_draw(watch, cell.draw)
            known[cell.draw] = cell.play(data[cell.draw], fitted, told)
            if folder is not None:
                _write(setting, row, [record for record in known.values() if record is not None], {}, folder)
    return _write(setting, row, [record for record in known.values() if record is not None], {}, folder)


def bench(
    protocol: str | Setting,
    methods: Sequence[str] | Mapping[str, Factory],
    draws: Draws = 5,
    *,
    out: Path | str,
    seed: int = 0,
    parameters: Mapping[str, Parameters] | None = None,
    recipe: str | Recipe | None = None,
    jobs: int | None = None,
    failed: Failure | None = None,
) -> list[RunRecord]:
    """Play every method on every draw, and give a record for each method, also kept as `out`/METHOD/run.json.

    `parameters` are the methods' own, by name. Finished cells are in `out`/cells and are played again only where
    something changed that they follow from; on a cluster without a shared disk they come back with the results. A cell
    that raises or dies is told to `failed`, or logged, and left out; a later call tries it again. With `recipe`,
    methods whose base session differs train their own; without, they are given the shared backbone.
    """
    named = dict(methods) if isinstance(methods, Mapping) else {name: name for name in methods}
    chosen = dict(parameters or {})
    if not named:
        raise InputError("A benchmark needs at least one method.")
    if jobs is not None and jobs < 1:
        raise InputError(f"{jobs} jobs were asked for; give at least 1.")
    if strangers := sorted(chosen.keys() - named.keys()):
        raise InputError(f"Parameters are given for '{strangers[0]}', which is not among the methods to be played.")
    entries = [Entry.of(method, chosen.get(name), name) for name, method in named.items()]
    plan = recipe_called(recipe) if isinstance(recipe, str) else recipe
    setting = protocol if isinstance(protocol, Setting) else prepare(protocol)
    folder = Path(out)
    settings = {entry.name: _own(setting, entry, plan, folder) for entry in entries}
    rows: dict[str, list[Cell]] = {}
    for entry in entries:
        try:
            rows[entry.name] = _row(settings[entry.name], entry, draws, seed, folder, _threads(jobs))
        except MasilError:
            raise
        except Exception as error:  # noqa: BLE001  a method of somebody else's cannot be made: the others can
            for draw in setting.draws(draws):
                (failed or _log)(entry.name, draw, f"{type(error).__name__}: {error}")
    known = {cell.place: finished(cell) for row in rows.values() for cell in row}
    done = {place: record for place, record in known.items() if record is not None}
    failures: dict[Place, str] = {}
    missing = {cell.place: cell for row in rows.values() for cell in row if cell.place not in done}

    def written(name: str) -> RunRecord | None:
        records = [done[cell.place] for cell in rows[name] if cell.place in done]
        why = {str(cell.draw): failures[cell.place] for cell in rows[name] if cell.place in failures}
        return _write(settings[name], rows[name], records, why, folder) if records else None

    for place, outcome in _play_all(missing, settings, jobs):
        if isinstance(outcome, CellRecord):
            done[place] = outcome
            written(place[0])
        else:
            failures[place] = _told(outcome, folder / "failures" / f"{place[0]}-{draw_name(place[1])}.txt")
            (failed or _log)(*place, failures[place])
    return [record for name in rows if (record := written(name)) is not None]


def own_recipe(method: str | Factory, usual: Recipe, protocol: Protocol, given: Parameters | None = None) -> Recipe:
    """Give the recipe of a method's base session: the usual one, unless the method trains in a way of its own."""
    return Entry.of(method, given).make(protocol.dataset).base_session(usual, protocol) or usual


def _row(
    setting: Setting, entry: Entry, draws: Draws, seed: int, folder: Path | None, threads: int | None
) -> list[Cell]:
    """Make the cells of one method, and refuse a folder that holds it in another setting."""
    place = None if folder is None else folder / "cells"
    row = list(cells(setting, entry, setting.draws(draws), seed=seed, command=command(), folder=place, threads=threads))
    if place is not None:
        refuse_other_settings(row, place)
    return row


def _write(
    setting: Setting, row: Sequence[Cell], records: Sequence[CellRecord], failed: Mapping[str, str], folder: Path | None
) -> RunRecord:
    """Gather a run, with the draws that an earlier call has left, and write its view."""
    if folder is None:
        return gather(setting, row, records, failed)
    record = gather(setting, row, with_earlier(row, records, folder / "cells"), failed)
    write_run(record, view_folder(folder, row[0].entry))
    return record


def _own(setting: Setting, entry: Entry, usual: Recipe | None, folder: Path) -> Setting:
    """Give a method the shared backbone, or one whose base session it has trained in its own way."""
    if not trains_its_own_base(entry.factory):
        return setting
    if usual is None:
        LOG.warning(
            "'%s' trains a base session of its own, but has the shared backbone here: no recipe is given.", entry.name
        )
        return setting
    recipe = own_recipe(entry.factory, usual, setting.protocol, entry.given)
    return with_base(setting, recipe, folder / f"base-{view_folder(folder, entry).name}")


def _play_all(
    missing: Mapping[Place, Cell], settings: Mapping[str, Setting], jobs: int | None
) -> Iterator[tuple[Place, Outcome]]:
    """Yield what becomes of every cell, as it becomes known."""
    left = dict(missing)
    held = _data(missing, settings)
    lost = ""
    with bar("Playing", len(missing)) as advance:
        for _ in range(ROUNDS):
            try:
                for place, outcome in _submit(left, held, jobs):
                    del left[place]
                    if isinstance(outcome, CellRecord):
                        _keep(missing[place], outcome)
                    advance(1)
                    yield place, outcome
            except MasilError:
                raise
            except Exception as error:  # noqa: BLE001  joblib's engine lost a worker: cells do not raise
                lost = f"its worker was lost ({type(error).__name__}: {error})"
                LOG.warning("A worker was lost (%s); %d cells are dealt out again.", error, len(left))
            if not left:
                break
    yield from ((place, TaskFailedError(lost)) for place in left)


def _submit(
    missing: Mapping[Place, Cell], held: Mapping[Place, DrawData], jobs: int | None
) -> Iterable[tuple[Place, Outcome]]:
    """Hand cells to joblib, and yield what becomes of them as its engine allows: one by one, or all at the end."""
    if not missing:
        return
    backend, _ = get_active_backend(prefer="threads")
    streams = getattr(backend, "supports_return_generator", False)
    parallel = joblib.Parallel(
        n_jobs=_jobs(jobs), prefer="threads", batch_size=1, return_as="generator_unordered" if streams else "list"
    )
    try:
        yield from parallel(
            joblib.delayed(_run_in_child)(place, pack(_play, cell), held[place])
            for place, cell in list(missing.items())  # joblib asks for them while the first results come in
        )
    finally:
        end_children()


def _run_in_child(place: Place, task: bytes, data: DrawData) -> tuple[Place, Outcome]:
    """Be joblib's worker: play a cell in a child, and say what became of it."""
    try:
        return place, in_child(task, {"data": data})
    except TaskFailedError as error:
        return place, error


def _play(cell: Cell, data: DrawData) -> CellRecord:
    """Be the child: play a cell, keeping the base session for the next one."""
    return cell.play(data, _fitted_here())


@cache
def _fitted_here() -> FittedCache:
    """Give the one cache of this process."""
    return FittedCache()


def _told(failure: TaskFailedError, file: Path) -> str:
    """Say in a sentence what went wrong; a traceback, where there is one, goes into a file."""
    if not failure.trace:
        return str(failure)
    write_bytes(file, failure.trace.encode())
    return f"{failure} (traceback: {file})"


def _data(cells: Mapping[Place, Cell], settings: Mapping[str, Setting]) -> dict[Place, DrawData]:
    """Make every activation that the cells need, once, before the first is played."""
    data: dict[Place, DrawData] = {}
    for setting in {id(setting): setting for setting in settings.values()}.values():
        here = [place for place in cells if settings[place[0]] is setting]
        by_draw = draw_data(setting, list(dict.fromkeys(draw for _, draw in here)), images=True)
        for place in here:
            sees_images = cells[place].method.sees == "images"
            data[place] = by_draw[place[1]] if sees_images else replace(by_draw[place[1]], images=None)
    return data


def _keep(cell: Cell, record: CellRecord) -> None:
    """Write what a worker could not, because it has no disk in common with this process."""
    if cell.file is not None and not cell.file.exists():
        write_json(cell.file, sealed(record.to_json()))


def _local() -> bool:
    """Say whether joblib's workers are threads of this process."""
    return bool(getattr(get_active_backend(prefer="threads")[0], "uses_threads", False))


def _jobs(jobs: int | None) -> int | None:
    """Give joblib's number of workers: an engine chosen outside knows its own."""
    return usable_cores() if jobs is None and _local() else jobs


def _threads(jobs: int | None) -> int | None:
    """Share the cores of this machine among its workers; elsewhere, and where the user has chosen, leave it alone."""
    if not _local() or "OMP_NUM_THREADS" in os.environ:
        return None
    return max(1, usable_cores() // (jobs or usable_cores()))


def _with_draw(watch: Watch, draw: int | None) -> Callable[[SessionResult], None]:
    return lambda played: watch(draw, played)


def _log(method: str, draw: int | None, sentence: str) -> None:
    LOG.warning("'%s' failed on %s: %s", method, "the standard shots" if draw is None else f"draw {draw}", sentence)
