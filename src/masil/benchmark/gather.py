"""Runs as views over cells: cells that follow from the same values but for the shots are the draws of one run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from masil.benchmark.cell import Cell, CellRecord, Entry, OutdatedError, digest, plain, read_cell
from masil.benchmark.record import RunRecord
from masil.benchmark.setting import Setting
from masil.errors import StorageError
from masil.methods import Task
from masil.protocol import PROTOCOLS

LOG = logging.getLogger(__name__)
# What a folder is for. A change of anything else that a cell follows from (parameters, code, version, shots) makes it
# be played again, beside the old one.
SETTING = (
    "protocol", "dataset", "base_classes", "sessions", "way", "shot", "order",
    "backbone", "recipe", "trained_for", "flip", "seed", "weights", "data",
)  # fmt: skip


def gather(
    setting: Setting, asked: Sequence[Cell], records: Sequence[CellRecord], failed: Mapping[str, str]
) -> RunRecord:
    """Put a run together from the cells of one row of a grid; there is at least one."""
    first, shape = records[0], setting.protocol
    return RunRecord(
        method=first.inputs["method"],
        protocol=shape.name,
        dataset=setting.dataset.name,
        way=shape.way,
        shot=shape.shot,
        base_classes=shape.base_classes,
        backbone=setting.backbone.name,
        weights=setting.weights,
        recipe=setting.recipe,
        parameters=first.inputs["parameters"],
        given=first.given,
        draws=tuple(record.draw for record in records),
        seed=first.inputs["seed"],
        weights_checksum=first.inputs["weights"],
        data_checksum=first.inputs["data"],
        code=first.inputs["code"],
        flip=setting.flip,
        asked=tuple(dict.fromkeys([*(cell.draw for cell in asked), *(record.draw.draw for record in records)])),
        failed=dict(failed),
        extras=_extras(setting, records),
    )


def parameters_now(record: RunRecord) -> dict[str, Any]:
    """Give the parameters that a run's method would have now, with what was chosen then."""
    entry = Entry.of(record.method, record.given)
    protocol = PROTOCOLS[record.protocol]
    task = Task(protocol, record.seed, adapted=record.recipe is not None)
    return plain(entry.make(protocol.dataset).parameters(task))


def with_earlier(asked: Sequence[Cell], records: Iterable[CellRecord], folder: Path) -> list[CellRecord]:
    """Add the draws that an earlier call left in the folder and that follow from the same values."""
    by_draw = {record.draw.draw: record for record in records}
    same = run_name(asked[0].inputs)
    for record in stored(folder, asked[0].entry.name):
        if run_name(record.inputs) == same:
            by_draw.setdefault(record.draw.draw, record)
    return sorted(by_draw.values(), key=lambda record: -1 if record.draw.draw is None else record.draw.draw)


def stored(folder: Path, method: str) -> Iterator[CellRecord]:
    """Yield a method's cells in a folder; those of an older masil are passed over with a sentence."""
    outdated = 0
    for file in sorted(folder.glob(f"{method}-*.json")):  # and those of methods whose names begin like this
        try:
            record = read_cell(file)
        except OutdatedError:
            outdated += 1
        else:
            if record.inputs["method"] == method:
                yield record
    if outdated:
        LOG.warning("%d cells in %s are of an older masil, which noted no parameters; left out.", outdated, folder)


def run_name(inputs: Mapping[str, Any]) -> str:
    """Give a short name for all that the cells of one run have in common."""
    return digest({name: value for name, value in inputs.items() if name not in ("draw", "shots")})


def view_folder(folder: Path, entry: Entry) -> Path:
    """Name the folder of a run's view: the method, and where parameters were chosen a short name for these."""
    return folder / (entry.name if not entry.given else f"{entry.name}-{digest(plain(entry.given))[:6]}")


def refuse_other_settings(cells: Sequence[Cell], folder: Path) -> None:
    """Refuse a folder in which this row of a grid was played in another setting; parameters and code may differ."""
    entry, here = cells[0].entry, cells[0].inputs
    standard = {cell.draw is None for cell in cells}
    for record in stored(folder, entry.name):
        different = [name for name in SETTING if record.inputs[name] != here[name]]
        sentences = [_difference(name, record.inputs[name], here[name]) for name in different[:3]]
        if (record.draw.draw is None) not in standard:
            sentences.append("standard shots in one of the two, draws in the other")
        if sentences and record.given == plain(entry.given):
            raise StorageError(
                f"{folder.parent} holds another run: {'; '.join(sentences)}. Choose another folder with --out."
            )


def _difference(name: str, there: Any, here: Any) -> str:
    """Say what differs: "flip False there, True here"."""
    sums = {"weights": "other weights of the backbone", "data": "other images or labels", "order": "another order"}
    return f"{sums[name]} there than here" if name in sums else f"{name} {there!r} there, {here!r} here"


def _extras(setting: Setting, records: Sequence[CellRecord]) -> dict[str, Any]:
    """Give what figures need: the method's remarks, cosines by session over the draws, the base session's epochs."""
    extras: dict[str, Any] = dict(records[-1].remarks)
    if splits := records[0].cosines:
        extras["cosines"] = {
            split: [
                [fmean(values) for values in zip(*pairs, strict=True)]
                for pairs in zip(*(record.cosines[split] for record in records), strict=True)
            ]
            for split in splits
        }
    if setting.history:
        extras["history"] = list(setting.history)
    return extras
