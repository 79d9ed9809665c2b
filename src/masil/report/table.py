"""One model of a table: columns, and groups of rows that are never mixed. Renderers turn it into text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

NOT_RUN = "not run"


@final
@dataclass(frozen=True)
class Cell:
    """A mean and, over several draws, its standard deviation; without a mean, `missing` is said instead."""

    mean: float | None = None
    deviation: float | None = None
    form: str = ".2f"
    missing: str = "–"
    best: bool = False

    def text(self) -> str:
        """Give "57.23", "57.23 ± 0.31", "+1.12", "−5.22e−04" or what is missing."""
        if self.mean is None:
            return self.missing
        number = f"{self.mean:{self.form}}"
        if self.deviation is not None:
            number += f" ± {self.deviation:{self.form.lstrip('+')}}"
        return number.replace("-", "−")


@final
@dataclass(frozen=True)
class Column:
    """A heading, perhaps below another that several columns share; `rank` marks the highest of each group."""

    name: str
    over: str = ""
    rank: bool = False


@final
@dataclass(frozen=True)
class Row:
    """A label with what distinguishes it, and cells; a row without cells says `remark` in their place."""

    label: str
    cells: tuple[Cell, ...] = ()
    detail: str = ""
    remark: str = NOT_RUN

    def texts(self, columns: int) -> list[str]:
        """Give one text a column, a remark standing in the first."""
        return [cell.text() for cell in self.cells] if self.cells else [self.remark] + [""] * (columns - 1)


@final
@dataclass(frozen=True)
class Group:
    """Rows of one origin, under its name."""

    title: str
    rows: tuple[Row, ...]


@final
@dataclass(frozen=True)
class Table:
    """A caption, the name of the first column, the others, the groups and the remarks below them."""

    title: str
    first: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()

    def headings(self) -> list[str]:
        """Give a heading a column that stands alone: with its shared heading only where names repeat."""
        names = [column.name for column in self.columns]
        if len(set(names)) == len(names):
            return names
        return [f"{column.over} {column.name}".strip() for column in self.columns]

    def spans(self) -> list[tuple[str, int]]:
        """Give the shared headings and how many neighbouring columns each covers."""
        found: list[tuple[str, int]] = []
        for column in self.columns:
            if found and found[-1][0] == column.over:
                found[-1] = (column.over, found[-1][1] + 1)
            else:
                found.append((column.over, 1))
        return found


def ranked(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[Row, ...]:
    """Mark the highest mean of each ranked column, as shown; a lone row has nothing to be better than."""
    compared = [row for row in rows if row.cells]
    if len(compared) < 2:
        return tuple(rows)
    highest: list[str | None] = []
    for place, column in enumerate(columns):
        means = [cell.mean for row in compared if (cell := row.cells[place]).mean is not None]
        highest.append(f"{max(means):.2f}" if column.rank and means else None)
    return tuple(
        replace(
            row,
            cells=tuple(
                replace(cell, best=cell.mean is not None and f"{cell.mean:.2f}" == top)
                for cell, top in zip(row.cells, highest, strict=True)
            ),
        )
        if row.cells
        else row
        for row in rows
    )
