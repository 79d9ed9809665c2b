"""A cell of a grid: one method on one draw. Once played, it is a file that says all that it follows from."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, final

import torch

import masil
from masil.benchmark.play import DrawData, SessionData, SessionResult, play, session_data
from masil.benchmark.provenance import make_stamp, own_code, own_source, package_code
from masil.benchmark.record import DrawRecord, draw_record
from masil.benchmark.run_file import damaged, draw_from_json, known_fields, read_sealed, write_sealed
from masil.benchmark.setting import HeldOut, Setting
from masil.errors import InputError, StorageError
from masil.methods import Checked, Method, Task, check_parameters, find_method

FORMAT = "masil-cell"
VERSION = 2  # 1 knew neither parameters nor the code that played it

Factory = Callable[..., Method]  # takes the method's parameters
Parameters = Mapping[str, Any]
CellKey = tuple[str, int | None]  # method and draw
Watch = Callable[[SessionResult], None]


@final
@dataclass(frozen=True)
class CellRecord:
    """The result of one method on one draw.

    `inputs` is every value that the result depends on: a stored cell is used again only where all of them are the same.
    """

    inputs: dict[str, Any]
    given: dict[str, Any]  # of the parameters in `inputs`, those that somebody chose
    draw: DrawRecord
    cosines: dict[str, list[list[float]]]  # "train" and "test", by session: to the own and the other class vectors
    remarks: dict[str, Any] = field(default_factory=dict)  # the method's own


@final
@dataclass(frozen=True)
class Entry:
    """A row of a grid: a method under a name, with the parameters that somebody chose."""

    name: str
    factory: Factory
    given: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, method: str | Factory, given: Mapping[str, Any] | None = None, name: str | None = None) -> Entry:
        """Take a method by a name that `find_method` knows or as its class; refuse parameters that it does not have."""
        if isinstance(method, partial):
            raise InputError(
                "A method is given as its class, and what is to differ from its defaults as `parameters`; a partial "
                "would hide them from the record."
            )
        factory: Factory
        if isinstance(method, str):
            known, factory = find_method(method)
            name = name or known
        else:
            name, factory = name or str(getattr(method, "__name__", type(method).__name__)), method
        check_parameters(name, factory, given or {})
        return cls(name, factory, dict(given or {}))

    def make(self, dataset: str) -> Method:
        """Make the method, with what its authors publish for the data set where nothing else was chosen."""
        published = getattr(self.factory, "published", {}).get(dataset, {})
        return self.factory(**{**published, **self.given})

    def task(self, setting: Setting, method: Method, seed: int) -> Task:
        """Say what the method is told; networks are handed to those that use them alone."""
        asked = None if setting.trained is None else method.base_session(setting.trained.recipe, setting.protocol)
        own = asked is not None and setting.trained is not None and asked.loss == setting.trained.recipe.loss
        sees_images = method.sees == "images"
        held_out = _held_out(setting, method, own=own)
        rehearsals = () if held_out is None else held_out.rehearsals
        return Task(
            protocol=setting.protocol,
            seed=seed,
            device=setting.device,
            adapted=setting.trained is not None,
            own=own,
            trained=setting.trained if own or sees_images else None,
            backbone=setting.backbone if sees_images else None,
            rehearsals=tuple(replace(part, task=replace(part.task, seed=seed)) for part in rehearsals),
        )


@final
@dataclass(frozen=True)
class Cell:
    """A method, made but not taught, on a draw; `file` keeps what comes of it (None: nothing)."""

    entry: Entry
    method: Method = field(repr=False)
    task: Task = field(repr=False)
    draw: int | None
    inputs: Mapping[str, Any] = field(repr=False)
    command: str
    file: Path | None = None
    threads: int | None = None  # of torch; None leaves them as they are

    @property
    def key(self) -> CellKey:
        """The cell's place in a grid."""
        return self.entry.name, self.draw

    def play(self, data: DrawData, fitted: FittedCache | None = None, watch: Watch | None = None) -> CellRecord:
        """Play the draw and give its record; `fitted` keeps a base session for the next draw of the same process."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        if package_code() != self.inputs["code"]:
            raise StorageError("The code was changed while the grid was playing; run the same command again.")
        started, start = datetime.now(UTC), time.perf_counter()
        stream = session_data(self.task.protocol, data)
        base = next(stream)
        method, seconds = (fitted or FittedCache()).fit(self, base)
        played = []
        for session in play(self.task.protocol, chain([base], stream), method, seconds):
            played.append(session)
            if watch is not None:
                watch(session)
        stamp = make_stamp(
            self.command, self.task.device, method.method, started=started, seconds=time.perf_counter() - start,
            own=own_source(self.entry.factory),
        )  # fmt: skip
        return CellRecord(
            inputs=dict(self.inputs),
            given=plain(self.entry.given),
            draw=draw_record(self.task.protocol, self.draw, played, stamp),
            cosines={split: [list(session.cosines[split]) for session in played] for split in played[-1].cosines},
            remarks={**method.method.remarks(), **({"own_base": True} if self.task.own else {})},
        )


class FittedCache:
    """The last base session of a process. Draws differ in their shots alone, so the next draw can start from it."""

    def __init__(self) -> None:
        self.factory: Factory | None = None
        self.inputs: Mapping[str, Any] = {}
        self.method: Checked | None = None
        self.seconds = 0.0

    def fit(self, cell: Cell, base: SessionData) -> tuple[Checked, float]:
        """Give the method of a cell after its base session, and the seconds that took."""
        inputs = without_shots(cell.inputs)
        if self.method is None or self.factory is not cell.entry.factory or self.inputs != inputs:
            method = Checked(copy.deepcopy(cell.method))
            start = time.perf_counter()
            method.fit(base.taught, cell.task)
            self.factory, self.inputs, self.method = cell.entry.factory, inputs, method
            self.seconds = time.perf_counter() - start
        return copy.deepcopy(self.method), self.seconds


def cells(
    setting: Setting,
    entry: Entry,
    shots: Mapping[int | None, str],
    *,
    seed: int,
    command: str,
    folder: Path | None = None,
    threads: int | None = None,
) -> Iterator[Cell]:
    """Yield the cells of a grid's row, each with everything that its figures follow from, as JSON keeps it.

    `shots` are the draws, each with the checksum of its shots.
    """
    shape = asdict(setting.protocol)
    method = entry.make(setting.protocol.dataset)
    task = entry.task(setting, method, seed)
    method.check_task(task)
    held_out = _held_out(setting, method, own=task.own)
    shared = {
        "method": entry.name,
        "parameters": plain(method.parameters(task)),
        "protocol": shape.pop("name"),
        **shape,
        "order": None if setting.protocol.order is None else list(setting.protocol.order),
        "backbone": setting.backbone.name,
        "recipe": setting.recipe,
        "trained_for": setting.trained_for,
        "views": setting.views,
        "seed": seed,
        "weights": setting.fingerprint,
        "data": setting.checksum,
        "version": masil.__version__,
        "code": package_code(),
        "own_code": own_code(entry.factory),
        "without": None if held_out is None else [held_out.recipe, *held_out.weights],
    }
    for draw, checksum in shots.items():
        inputs = {**shared, "draw": draw, "shots": checksum}
        file = None if folder is None else folder / "cells" / f"{entry.name}-{draw_name(draw)}-{digest(inputs)}.json"
        yield Cell(entry, method, task, draw=draw, inputs=inputs, command=command, file=file, threads=threads)


def _held_out(setting: Setting, method: Method, *, own: bool) -> HeldOut | None:
    """Give the backbones on which a method makes its choices, if not on its own: they bring activations alone."""
    return setting.held_out if method.chooses and method.sees == "activations" and not own else None


def draw_name(draw: int | None) -> str:
    """Name a draw in a file's name."""
    return "standard" if draw is None else f"draw-{draw}"


def digest(inputs: Mapping[str, Any]) -> str:
    """Give a short name for all that a cell follows from."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:10]


def without_shots(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Give what the cells of one run have in common."""
    return {name: value for name, value in inputs.items() if name not in ("draw", "shots")}


def write_cell(file: Path, record: CellRecord) -> None:
    """Keep a finished cell."""
    write_sealed(file, {"format": FORMAT, "version": VERSION, **asdict(record)})


def read_cell(file: Path) -> CellRecord | None:
    """Read a finished cell; None where an older masil wrote it, which did not note parameters and code."""
    value = read_sealed(file, FORMAT, VERSION, "a finished draw of masil")
    if value["version"] < VERSION:
        return None
    try:
        return CellRecord(**known_fields(CellRecord, value) | {"draw": draw_from_json(value["draw"])})
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(file, error) from error


def plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Give values as JSON keeps them; those that it does not know become text."""
    return {name: _plain(value) for name, value in sorted(parameters.items())}


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int | type(None)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else str(value)
