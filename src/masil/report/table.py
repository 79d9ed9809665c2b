"""One model of a table: columns, and groups of rows that are never mixed. Renderers turn it into text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Self, final

from masil.protocol import Spread, mean_and_interval

NOT_RUN = "not run"


@final
@dataclass(frozen=True)
class Value:
    """A mean with its deviation over draws or its 95 % interval; without a mean, `words` are said instead."""

    mean: float | None = None
    deviation: float | None = None
    interval: tuple[float, float] | None = None
    form: str = ".2f"
    words: str = "–"
    link: str = ""  # where the words lead
    best: bool = False

    @classmethod
    def of(cls, spread: Spread | None) -> Self:
        """Take a figure over draws: its mean and, of several, the deviation."""
        if spread is None:
            return cls()
        return cls(spread.mean, spread.std if spread.n > 1 else None)

    @classmethod
    def difference(cls, values: Sequence[float]) -> Self:
        """Take a difference on each draw: its mean with a sign and, of several draws, the interval of a t-test."""
        if not values:
            return cls()
        spread = mean_and_interval(values)
        return cls(spread.mean, interval=(spread.low, spread.high) if spread.n > 1 else None, form="+.2f")

    def text(self) -> str:
        """Give "57.23", "57.23 ± 0.31", "+1.12 [0.40, 1.84]", "−5.22e−04" or the words."""
        if self.mean is None:
            return self.words
        number, plain = f"{self.mean:{self.form}}", self.form.lstrip("+")
        if self.deviation is not None:
            number += f" ± {self.deviation:{plain}}"
        if self.interval is not None:
            number += f" [{self.interval[0]:{plain}}, {self.interval[1]:{plain}}]"
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
    """A label with what distinguishes it, and values; a row without values says `remark` in their place."""

    label: str
    values: tuple[Value, ...] = ()
    detail: str = ""
    remark: str = NOT_RUN

    def cells(self, columns: int) -> list[Value]:
        """Give a value for each column, the remark of a row without values standing in the first."""
        return list(self.values) or [Value(words=self.remark), *[Value(words="")] * (columns - 1)]

    def texts(self, columns: int) -> list[str]:
        """Give `cells` as text."""
        return [value.text() for value in self.cells(columns)]


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
        """Give each column one heading: its name, after the heading it shares with others where names repeat."""
        names = [column.name for column in self.columns]
        if len(set(names)) == len(names):
            return names
        return [f"{column.over} {column.name}".strip() for column in self.columns]

    def spans(self) -> list[tuple[str, int]]:
        """Give the shared headings and how many neighbouring columns each covers."""
        return [(over, len(list(columns))) for over, columns in groupby(self.columns, lambda column: column.over)]


def ranked(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[Row, ...]:
    """Mark the highest mean of each ranked column, as shown; a lone row has nothing to be better than."""
    compared = [row for row in rows if row.values]
    if len(compared) < 2:
        return tuple(rows)
    highest: list[str | None] = []
    for index, column in enumerate(columns):
        means = [mean for row in compared if (mean := row.values[index].mean) is not None]
        highest.append(f"{max(means):.2f}" if column.rank and means else None)

    def marked(row: Row) -> Row:
        pairs = zip(row.values, highest, strict=False)  # none of a row without values
        best = (replace(value, best=value.mean is not None and f"{value.mean:.2f}" == top) for value, top in pairs)
        return replace(row, values=tuple(best))

    return tuple(map(marked, rows))
