"""A cell of a grid: one method on one draw. Once played, it is a file of its own, and never played again."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from masil.benchmark.facts import model_bytes, peak_bytes
from masil.benchmark.material import lessons
from masil.benchmark.play import Lesson, Played, play
from masil.benchmark.record import DrawRecord, draw_record
from masil.benchmark.run_file import check_format, damaged, draw_from_json
from masil.benchmark.setting import Setting
from masil.errors import StorageError
from masil.files import read_json, write_json
from masil.methods import Method
from masil.protocol import Protocol

FORMAT = "masil-cell"
VERSION = 1

Factory = Callable[..., Method]  # takes `total`, the classes that will ever come, and `seed`
Place = tuple[str, int | None]  # method and draw
Watch = Callable[[Played], None]


@final
@dataclass(frozen=True)
class CellRecord:
    """A draw's record, what it cost, and `of`: everything that its figures follow from."""

    of: dict[str, Any]
    draw: DrawRecord
    parameters: dict[str, Any]
    started: str
    seconds: float
    model_bytes: int
    peak_bytes: int
    cosines: dict[str, list[list[float]]]  # "train" and "test", by session: to the own and the other class vectors
    remarks: dict[str, Any] = field(default_factory=dict)  # the method's own

    def to_json(self) -> dict[str, Any]:
        """Give plain values."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


@final
@dataclass(frozen=True)
class Cell:
    """A method, by name and as what makes it, on a draw, and the file that keeps what comes of it (None: nothing)."""

    method: str
    factory: Factory
    protocol: Protocol
    draw: int | None
    seed: int
    of: Mapping[str, Any] = field(repr=False)
    file: Path | None = None
    threads: int | None = None  # of torch; None leaves them as they are

    @property
    def place(self) -> Place:
        """The cell's place in a grid."""
        return self.method, self.draw

    def play(self, watch: Watch | None = None, /, **arrays: np.ndarray) -> CellRecord:
        """Play the draw and keep its record."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        started, start = datetime.now(UTC), time.perf_counter()
        stream = lessons(self.protocol, arrays)
        base = next(stream)
        method, fitted = self._taught(base)
        parameters = plain({**published(self.factory, self.protocol), **getattr(method, "parameters", {})})
        played = []
        for session in play(self.protocol, chain([base], stream), method, fitted=fitted):
            played.append(session)
            if watch is not None:
                watch(session)
        record = CellRecord(
            of=dict(self.of),
            draw=draw_record(self.protocol, self.draw, played),
            parameters=parameters,
            started=started.isoformat(timespec="seconds"),
            seconds=time.perf_counter() - start,
            model_bytes=model_bytes(method),
            peak_bytes=peak_bytes(),
            cosines={split: [list(session.cosines[split]) for session in played] for split in played[-1].cosines},
            remarks=method.remarks(),
        )
        if self.file is not None:
            write_json(self.file, record.to_json())
        return record

    def _taught(self, base: Lesson) -> tuple[Method, float]:
        """Give the method after its base session, and the seconds that took.

        Draws differ in their shots alone, so the last base session of this process is kept for the next draw.
        """
        last = _LAST.get("base")
        if last is None or last.factory is not self.factory or last.of != self.of:
            method = make_method(self.factory, self.protocol, self.seed)
            method.backbone_trained = self.of.get("recipe") is not None
            method.own_base = self.of.get("trained_for") == self.method
            start = time.perf_counter()
            method.fit(base.activations, base.labels)
            last = _LAST["base"] = _Fitted(self.factory, dict(self.of), method, time.perf_counter() - start)
        return copy.deepcopy(last.method), last.seconds


@final
@dataclass(frozen=True)
class _Fitted:
    """A method after its base session, and what it follows from."""

    factory: Factory
    of: Mapping[str, Any]
    method: Method
    seconds: float


_LAST: dict[str, _Fitted] = {}  # at most one, under "base"


def make_method(factory: Factory, protocol: Protocol, seed: int = 0) -> Method:
    """Make a method for a protocol, with what its authors publish for the data set."""
    return factory(total=protocol.classes, seed=seed, **published(factory, protocol))


def published(factory: Factory, protocol: Protocol) -> Mapping[str, Any]:
    """Give the parameters that a method's authors give for a protocol's data set."""
    found: Mapping[str, Any] = getattr(factory, "published", {}).get(protocol.dataset, {})
    return found


def identity(setting: Setting, method: str, seed: int) -> dict[str, Any]:
    """Give everything that the figures of a method's draws follow from, as JSON keeps it."""
    shape = asdict(setting.protocol)
    return {
        "method": method,
        "protocol": shape.pop("name"),
        **shape,
        "order": None if setting.protocol.order is None else list(setting.protocol.order),
        "backbone": setting.backbone.name,
        "recipe": setting.recipe,
        "trained_for": setting.trained_for,
        "flip": setting.flip,
        "seed": seed,
        "weights": setting.fingerprint,
        "data": setting.checksum,
    }


def file_of(folder: Path, draw: int | None, method: str | None = None) -> Path:
    """Name the file of a draw, or of a method's draw."""
    name = "standard" if draw is None else f"draw-{draw}"
    return folder / f"{name if method is None else f'{method}-{name}'}.json"


def read_cell(file: Path) -> CellRecord:
    """Read a finished cell."""
    value = read_json(file)
    check_format(value, file, FORMAT, VERSION, "a finished draw of masil")
    try:
        names = ("of", "parameters", "started", "seconds", "model_bytes", "peak_bytes", "cosines")
        kept = {name: value[name] for name in names}
        return CellRecord(draw=draw_from_json(value["draw"]), remarks=value.get("remarks", {}), **kept)
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(file, error) from error


def finished(file: Path, of: Mapping[str, Any]) -> CellRecord | None:
    """Give the cell of a file, None where there is none; one of another run is refused."""
    if not file.exists():
        return None
    record = read_cell(file)
    if different := list(_differences(record.of, of)):
        raise StorageError(
            f"{file.parent} holds another run: {'; '.join(different[:3])}. Choose another folder with --out."
        )
    return record


def plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the values that JSON knows, and say the others."""
    known = (str, bool, int, type(None))
    return {
        name: value if isinstance(value, known) or (isinstance(value, float) and math.isfinite(value)) else str(value)
        for name, value in parameters.items()
    }


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """Say what differs: "method 'teen' there, 'masil' here"."""
    sums = {"weights": "other weights of the backbone", "data": "other images or labels", "order": "another order"}
    for name in here:
        if there.get(name) != here[name]:
            yield (
                f"{sums[name]} there than here"
                if name in sums
                else f"{name} {there.get(name)!r} there, {here[name]!r} here"
            )
