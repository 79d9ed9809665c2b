"""One method through a protocol, draw by draw; what is finished is kept, and an interrupted run goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from masil.benchmark import facts
from masil.benchmark.cell import Cell, CellRecord, Factory, file_of, finished, identity, make_method
from masil.benchmark.material import materials
from masil.benchmark.play import Played
from masil.benchmark.record import RunRecord
from masil.benchmark.run_file import FILE, write_run
from masil.benchmark.setting import Draws, Setting, prepare
from masil.errors import StorageError, lookup
from masil.methods import METHODS
from masil.protocol import Protocol
from masil.training import Recipe

Watch = Callable[[int | None, Played], None]


def run(
    protocol: str | Setting,
    method: str | Factory = "masil",
    draws: Draws = None,
    *,
    seed: int = 0,
    out: Path | str | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> RunRecord:
    """Judge a method by a protocol: its name, or what `prepare` made of it with a backbone and data of one's choice.

    `draws` are how many (0, 1, …) or which; without any, the field's standard shots. With `out`, every finished draw is
    kept there at once, beside a run.json of those so far; `resume` plays only what is missing. `watch` is told every
    session. A method of one's own is given as what makes it: a class that takes `total` and `seed`.
    """
    name, factory = named(method)
    setting = protocol if isinstance(protocol, Setting) else prepare(protocol)
    wanted = setting.draws(draws)
    folder = None if out is None else Path(out)
    of = identity(setting, name, seed)
    if folder is not None:
        _check_folder(folder, of, resume)
    files = {draw: None if folder is None else file_of(folder / "draws", draw) for draw in wanted}
    known = {draw: None if file is None else finished(file, of) for draw, file in files.items()}
    arrays = materials(setting, [draw for draw in wanted if known[draw] is None])
    circumstances = gather_facts(setting)
    cells: list[CellRecord] = []
    for draw, record in known.items():
        if record is None:
            cell = Cell(name, factory, setting.protocol, draw, seed, of, files[draw])
            record = cell.play(_told(watch, draw), **arrays[draw])
        cells.append(record)
        if folder is not None:
            write_run(gather(setting, name, cells, seed, circumstances), folder)
    return gather(setting, name, cells, seed, circumstances)


def named(method: str | Factory) -> tuple[str, Factory]:
    """Give a method's name and what makes it."""
    if isinstance(method, str):
        return method, lookup("method", method, METHODS)
    return getattr(method, "__name__", type(method).__name__), method


def own_recipe(factory: Factory, usual: Recipe, protocol: Protocol) -> Recipe:
    """Give the recipe of a method's base session: the usual one, unless the method trains in a way of its own."""
    if not getattr(factory, "needs_base_training", False):
        return usual
    return make_method(factory, protocol).recipe(usual, protocol.base_classes)


def gather_facts(setting: Setting) -> dict[str, Any]:
    """Give what all records made in this process share."""
    return {
        "command": facts.command(),
        "versions": facts.versions(),
        "commit": facts.commit(),
        "machine": facts.machine(setting.device),
    }


def gather(
    setting: Setting, method: str, cells: Sequence[CellRecord], seed: int, circumstances: dict[str, Any]
) -> RunRecord:
    """Put the record of a run together from its finished draws."""
    shape = setting.protocol
    return RunRecord(
        method=method,
        protocol=shape.name,
        dataset=setting.dataset.name,
        way=shape.way,
        shot=shape.shot,
        base_classes=shape.base_classes,
        backbone=setting.backbone.name,
        weights=setting.weights,
        recipe=setting.recipe,
        parameters=cells[-1].parameters,
        draws=tuple(cell.draw for cell in cells),
        seed=seed,
        data_checksum=setting.checksum,
        started=min(cell.started for cell in cells),
        seconds=sum(cell.seconds for cell in cells),
        memory={
            "model_bytes": max(cell.model_bytes for cell in cells),
            "peak_bytes": max(cell.peak_bytes for cell in cells),
        },
        flip=setting.flip,
        extras=_extras(setting, cells),
        **circumstances,
    )


def _extras(setting: Setting, cells: Sequence[CellRecord]) -> dict[str, Any]:
    """Give what figures need: the method's remarks, cosines by session over the draws, the base session's epochs."""
    extras: dict[str, Any] = dict(cells[-1].remarks)
    if splits := cells[0].cosines:
        extras["cosines"] = {
            split: [
                [fmean(values) for values in zip(*pairs, strict=True)]
                for pairs in zip(*(cell.cosines[split] for cell in cells), strict=True)
            ]
            for split in splits
        }
    if setting.history:
        extras["history"] = list(setting.history)
    return extras


def _told(watch: Watch | None, draw: int | None) -> Callable[[Played], None] | None:
    return None if watch is None else lambda played: watch(draw, played)


def _check_folder(folder: Path, of: dict[str, Any], resume: bool) -> None:
    """Refuse a folder that holds another run, or this one unless it is to go on."""
    files = sorted((folder / "draws").glob("*.json"))
    for file in files:
        finished(file, of)
    if not files and (folder / FILE).exists():
        raise StorageError(f"{folder} holds the {FILE} of another run. Choose another folder with --out.")
    if files and not resume:
        count = f"{len(files)} finished draw{'s' if len(files) > 1 else ''}"
        raise StorageError(
            f"{folder} holds this run already, with {count}. "
            "Add --resume to keep them and play what is missing, or choose another folder with --out."
        )
