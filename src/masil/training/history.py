"""One row per epoch: kept in the checkpoint, written beside it as JSON, and said in the log."""

from __future__ import annotations

import math
from typing import Any

Row = dict[str, Any]


def tidy(row: Row) -> Row:
    """Shorten numbers to what they mean, and leave out what is none."""
    return {name: _short(value) for name, value in row.items() if value is not None and _is_number(value)}


def sentence(row: Row, epochs: int, seconds_left: float) -> str:
    """Say a row in one line."""
    parts = [f"epoch {row['epoch']}/{epochs}", f"{row['pixels']} px", f"loss {row['loss']:.3f}"]
    if "accuracy" in row:
        parts.append(f"held-out accuracy {100 * row['accuracy']:.1f} %")
    if "nc1" in row:
        parts.append(f"NC1 {row['nc1']:.3g}")
    parts += [f"{row['images_per_second']:.0f} images/s", f"{duration(row['seconds'])}, {duration(seconds_left)} left"]
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """Give a time as people say it: 42 s, 3 min 20 s, 1 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _is_number(value: float) -> bool:
    return math.isfinite(value)


def _short(value: float) -> float:
    return float(f"{value:.6g}") if isinstance(value, float) else value
