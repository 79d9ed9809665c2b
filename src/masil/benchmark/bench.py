"""A grid of methods and draws, in parallel: joblib deals the cells out, and a cell that fails costs only itself.

joblib's engine is whatever `joblib.parallel_config` names around the call: threads by default, dask.distributed or Ray
on a cluster. Each worker plays its cells in a child process (see `child`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
from joblib.parallel import get_active_backend

from masil.benchmark.cell import Cell, CellRecord, Factory, Place, file_of, finished, identity
from masil.benchmark.child import TaskFailedError, end_children, in_child, pack
from masil.benchmark.material import Material, materials
from masil.benchmark.record import RunRecord
from masil.benchmark.run import gather, gather_facts, named, own_recipe
from masil.benchmark.run_file import write_run
from masil.benchmark.setting import Draws, Setting, prepare, with_base
from masil.errors import InputError, MasilError
from masil.files import write_json
from masil.hardware import usable_cores
from masil.progress import bar
from masil.training import Recipe
from masil.training import recipe as recipe_called

LOG = logging.getLogger(__name__)
ROUNDS = 3  # how often cells are dealt out again whose worker was lost with its machine

Failure = Callable[[str, int | None, str], None]


def bench(
    protocol: str | Setting,
    methods: Sequence[str] | Mapping[str, Factory],
    draws: Draws = 5,
    *,
    out: Path | str,
    seed: int = 0,
    recipe: str | Recipe | None = None,
    jobs: int | None = None,
    failed: Failure | None = None,
) -> list[RunRecord]:
    """Play every method on every draw, and give a record for each method, also kept as `out`/METHOD/run.json.

    Finished cells are in `out`/cells and never played again; on a cluster without a shared disk they come back with the
    results. A cell that raises or dies is told to `failed`, or logged, and left out; a later call tries it again.
    With `recipe`, methods whose base session differs train their own; without, they are given the shared backbone.
    """
    table = dict(methods) if isinstance(methods, Mapping) else dict(named(name) for name in methods)
    if not table:
        raise InputError("A benchmark needs at least one method.")
    if jobs is not None and jobs < 1:
        raise InputError(f"{jobs} jobs were asked for; give at least 1.")
    plan = recipe_called(recipe) if isinstance(recipe, str) else recipe
    setting = protocol if isinstance(protocol, Setting) else prepare(protocol)
    wanted, folder = setting.draws(draws), Path(out)
    settings = {name: _own(setting, name, factory, plan, folder) for name, factory in table.items()}
    cells = {cell.place: cell for cell in _cells(table, settings, wanted, seed, folder / "cells", _threads(jobs))}
    known = {place: finished(cell.file, cell.of) for place, cell in cells.items() if cell.file is not None}
    done = {place: record for place, record in known.items() if record is not None}
    failures: dict[Place, str] = {}
    missing = {place: cell for place, cell in cells.items() if place not in done}
    for place, outcome in _play_all(missing, settings, jobs):
        if isinstance(outcome, CellRecord):
            done[place] = outcome
        else:
            failures[place] = outcome
            (failed or _log)(*place, outcome)
    return list(_records(settings, wanted, done, failures, seed, folder))


def _cells(
    table: Mapping[str, Factory],
    settings: Mapping[str, Setting],
    draws: Sequence[int | None],
    seed: int,
    folder: Path,
    threads: int | None,
) -> Iterator[Cell]:
    for name, factory in table.items():
        setting = settings[name]
        of = identity(setting, name, seed)
        for draw in draws:
            yield Cell(name, factory, setting.protocol, draw, seed, of, file_of(folder, draw, name), threads)


def _own(setting: Setting, name: str, factory: Factory, usual: Recipe | None, folder: Path) -> Setting:
    """Give a method the shared backbone, or one whose base session it has trained in its own way."""
    if not getattr(factory, "needs_base_training", False):
        return setting
    if usual is None:
        LOG.warning(
            "'%s' trains a base session of its own, but has the shared backbone here: no recipe is given.", name
        )
        return setting
    return with_base(setting, own_recipe(factory, usual, setting.protocol), folder / f"base-{name}")


def _play_all(
    cells: Mapping[Place, Cell], settings: Mapping[str, Setting], jobs: int | None
) -> Iterator[tuple[Place, CellRecord | str]]:
    """Yield what becomes of every cell, as it becomes known."""
    left = dict(cells)
    held = _material(list(cells), settings)
    lost = ""
    with bar("Playing", len(cells)) as advance:
        for _ in range(ROUNDS):
            try:
                for place, outcome in _deal(left, held, jobs):
                    del left[place]
                    if isinstance(outcome, CellRecord):
                        _keep(cells[place], outcome)
                    advance(1)
                    yield place, outcome
            except MasilError:
                raise
            except Exception as error:  # noqa: BLE001  joblib's engine lost a worker: cells do not raise
                lost = f"its worker was lost ({type(error).__name__}: {error})"
                LOG.warning("A worker was lost (%s); %d cells are dealt out again.", error, len(left))
            if not left:
                break
    yield from ((place, lost) for place in left)


def _deal(
    cells: Mapping[Place, Cell], held: Mapping[Place, Material], jobs: int | None
) -> Iterable[tuple[Place, CellRecord | str]]:
    """Hand cells to joblib, and yield what becomes of them as its engine allows: one by one, or all at the end."""
    if not cells:
        return
    backend, _ = get_active_backend(prefer="threads")
    streams = getattr(backend, "supports_return_generator", False)
    parallel = joblib.Parallel(
        n_jobs=_jobs(jobs), prefer="threads", batch_size=1, return_as="generator_unordered" if streams else "list"
    )
    try:
        yield from parallel(
            joblib.delayed(_work)(place, pack(Cell.play, cell, None), **held[place])
            for place, cell in list(cells.items())  # joblib asks for them while the first results come in
        )
    finally:
        end_children()


def _work(place: Place, task: bytes, **arrays: Any) -> tuple[Place, CellRecord | str]:
    """Be joblib's worker: play a cell in a child, and say what became of it."""
    try:
        return place, in_child(task, arrays)
    except TaskFailedError as error:
        return place, str(error)


def _material(cells: Sequence[Place], settings: Mapping[str, Setting]) -> dict[Place, Material]:
    """Make every activation that the cells need, once, before the first is played."""
    found: dict[Place, Material] = {}
    for setting in {id(setting): setting for setting in settings.values()}.values():
        own = [place for place in cells if settings[place[0]] is setting]
        by_draw = materials(setting, list(dict.fromkeys(draw for _, draw in own)))
        found |= {place: by_draw[place[1]] for place in own}
    return found


def _keep(cell: Cell, record: CellRecord) -> None:
    """Write what a worker could not, because it has no disk in common with this process."""
    if cell.file is not None and not cell.file.exists():
        write_json(cell.file, record.to_json())


def _records(
    settings: Mapping[str, Setting],
    draws: Sequence[int | None],
    done: Mapping[Place, CellRecord],
    failures: Mapping[Place, str],
    seed: int,
    folder: Path,
) -> Iterator[RunRecord]:
    for name, setting in settings.items():
        finished_cells = [done[name, draw] for draw in draws if (name, draw) in done]
        if not finished_cells:
            continue
        record = gather(setting, name, finished_cells, seed, gather_facts(setting))
        wrong = {str(draw): failures[name, draw] for draw in draws if (name, draw) in failures}
        if wrong:
            record = replace(record, extras=record.extras | {"failed": wrong})
        write_run(record, folder / name)
        yield record


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


def _log(method: str, draw: int | None, sentence: str) -> None:
    LOG.warning("'%s' failed on %s: %s", method, "the standard shots" if draw is None else f"draw {draw}", sentence)
