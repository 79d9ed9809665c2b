"""One method of a grid: its cells, those of earlier calls among them, and the run that they make together.

A run is a view over cells. Cells whose results depend on the same values but for the shots are its draws.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, final

from masil.benchmark.cell import Cell, CellRecord, Entry, digest, plain, read_cell, without_shots, write_cell
from masil.benchmark.record import DIVERGED, RunRecord
from masil.benchmark.run_file import write_run
from masil.benchmark.setting import Setting
from masil.errors import StorageError
from masil.methods import Task
from masil.protocol import PROTOCOLS

LOG = logging.getLogger(__name__)
# What a folder is for. A change of anything else that a cell depends on (parameters, code, version, shots) makes it be
# played again, beside the old one.
SETTING = (
    "protocol", "dataset", "base_classes", "sessions", "way", "shot", "order",
    "backbone", "recipe", "trained_for", "views", "seed", "weights", "data",
)  # fmt: skip
# What a run says of all its cells under the same name.
SHARED = (
    "method", "protocol", "way", "shot", "base_classes", "backbone", "recipe", "parameters", "seed", "code", "own_code",
    "views",
)  # fmt: skip


@final
@dataclass
class RunView:
    """A method in a setting: the cells that were asked for, and the records that are known, by draw.

    A folder that holds the method with the same parameters in another setting is refused.
    """

    setting: Setting
    cells: Sequence[Cell]
    folder: Path | None  # for cells and the view; None keeps nothing
    failed: dict[str, str] = field(default_factory=dict)  # draw -> why there is no record
    written: RunRecord | None = None  # what is known, as it was written last

    def __post_init__(self) -> None:
        self.known: dict[int | None, CellRecord] = {}
        self.entry = self.cells[0].entry
        self._read()

    @property
    def missing(self) -> list[Cell]:
        """The cells that were asked for and have no record."""
        return [cell for cell in self.cells if cell.draw not in self.known]

    def add(self, cell: Cell, record: CellRecord) -> None:
        """Take in a cell that was played, and keep it and the view that has it now."""
        self.known[cell.draw] = record
        if cell.file is not None:
            write_cell(cell.file, record)
            self.write()

    def write(self) -> RunRecord:
        """Gather the run from all that is known, also from what others have put into the folder; keep its view."""
        self._read()
        self.written = self._gathered()
        if self.folder is not None:
            write_run(self.written, view_folder(self.folder, self.entry))
        return self.written

    def _read(self) -> None:
        """Take in the folder's cells that depend on the same values as those here; refuse those of another setting."""
        shared, asked = without_shots(self.cells[0].inputs), {cell.draw: cell.inputs for cell in self.cells}
        for record in self._stored():
            self._refuse_other_setting(record)
            draw, inputs = record.draw.draw, record.inputs
            if without_shots(inputs) == shared and asked.get(draw, inputs) == inputs:
                self.known.setdefault(draw, record)

    def _stored(self) -> Iterator[CellRecord]:
        """Yield the method's cells in the folder; those of an older masil are passed over with a sentence."""
        outdated = 0
        files = [] if self.folder is None else sorted((self.folder / "cells").glob(f"{self.entry.name}-*.json"))
        for file in files:  # those of methods whose names begin like this among them
            if (record := read_cell(file)) is None:
                outdated += 1
            elif record.inputs["method"] == self.entry.name:
                yield record
        if outdated and self.written is None:
            LOG.warning(
                "%d cells in %s are of an older masil, which noted no parameters; left out.", outdated, self.folder
            )

    def _refuse_other_setting(self, record: CellRecord) -> None:
        here, there = self.cells[0].inputs, record.inputs
        sentences = [_difference(name, there[name], here[name]) for name in SETTING if there[name] != here[name]][:3]
        if (record.draw.draw is None) not in {cell.draw is None for cell in self.cells}:
            sentences.append("standard shots in one of the two, draws in the other")
        if sentences and record.given == plain(self.entry.given):
            raise StorageError(
                f"{self.folder} holds another run: {'; '.join(sentences)}. Choose another folder with --out."
            )

    def _gathered(self) -> RunRecord:
        """Make the run of the cells that are known, at least one."""
        records = sorted(self.known.values(), key=lambda record: -1 if record.draw.draw is None else record.draw.draw)
        inputs = records[0].inputs
        draws = tuple(replace(record.draw, shots=record.inputs["shots"]) for record in records)
        return RunRecord(
            **{name: inputs[name] for name in SHARED},
            dataset=self.setting.dataset.name,
            weights=self.setting.weights,
            given=records[0].given,
            draws=draws,
            weights_checksum=inputs["weights"],
            without=(inputs.get("without") or [None])[0],
            data_checksum=inputs["data"],
            asked=tuple(dict.fromkeys([*(cell.draw for cell in self.cells), *(draw.draw for draw in draws)])),
            failed=dict(self.failed),
            extras=_extras(self.setting, records),
        )


def parameters_now(record: RunRecord) -> dict[str, Any]:
    """Give the parameters that a run's method would have now, with what was chosen then."""
    entry = Entry.of(record.method, record.given)
    protocol = PROTOCOLS[record.protocol]
    task = Task(protocol, record.seed, adapted=record.recipe is not None)
    return plain(entry.make(protocol.dataset).parameters(task))


def view_folder(folder: Path, entry: Entry) -> Path:
    """Name the folder of a run's view: the method, and where parameters were chosen a short name for these."""
    return folder / (entry.name if not entry.given else f"{entry.name}-{digest(plain(entry.given))[:6]}")


def _difference(name: str, there: Any, here: Any) -> str:
    """Say what differs: "views 1 there, 2 here"."""
    sums = {"weights": "other weights of the backbone", "data": "other images or labels", "order": "another order"}
    return f"{sums[name]} there than here" if name in sums else f"{name} {there!r} there, {here!r} here"


def mean_cosines(by_draw: Sequence[Mapping[str, Any]]) -> dict[str, list[list[float]]]:
    """Give the cosines of each split and session as means over draws."""
    return {
        split: [
            [fmean(values) for values in zip(*pairs, strict=True)]
            for pairs in zip(*(cosines[split] for cosines in by_draw), strict=True)
        ]
        for split in by_draw[0]
    }


def _extras(setting: Setting, records: Sequence[CellRecord]) -> dict[str, Any]:
    """Give what figures need: the last draw's remarks, what diverged, cosines by session, the base session's epochs."""
    extras: dict[str, Any] = dict(records[-1].remarks)
    if any(DIVERGED in record.remarks for record in records):
        extras["diverged_by_draw"] = [record.remarks.get(DIVERGED, {}) for record in records]
    if records[0].cosines:
        extras["cosines_by_draw"] = [record.cosines for record in records]
        extras["cosines"] = mean_cosines(extras["cosines_by_draw"])
    if setting.history:
        extras["history"] = list(setting.history)
    return extras
