"""How a run was measured: what, with which versions, on which machine, and the command that does it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from masil.benchmark import RunRecord
from masil.report.measured import draws_of


def provenance(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Give name and value of everything one needs to know to trust a run."""
    yield "command", record.command
    yield "backbone", f"{record.backbone}, weights {record.weights}"
    yield "base session", f"recipe {record.recipe}" if record.recipe else "not trained"
    yield "model", "the last epoch's"
    yield "shots", _shots(record)
    yield "seed", str(record.seed)
    if record.parameters:
        yield "parameters", _pairs(record.parameters)
    yield "data", record.data_checksum
    yield "versions", _pairs(record.versions)
    yield "commit", record.commit or "unknown"
    yield "machine", _pairs(record.machine)
    yield "started", record.started
    yield "took", duration(record.seconds)
    for name, label in (("model_bytes", "the method keeps"), ("peak_bytes", "peak memory")):
        if name in record.memory:
            yield label, f"{record.memory[name] / 1e6:,.1f} MB"


def again(record: RunRecord) -> str:
    """Give the commands that repeat a run: the same code, then the same command."""
    return f"git checkout {record.commit}\n{record.command}" if record.commit else record.command


def duration(seconds: float) -> str:
    """Give a time as people say it: 4.2 s, 3 min 20 s, 1 h 05 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _shots(record: RunRecord) -> str:
    seeds = [str(draw.draw) for draw in record.draws if draw.draw is not None]
    return draws_of(record) + (f" (seeds {', '.join(seeds)})" if len(record.draws) > 1 and seeds else "")


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()) if value is not None)
