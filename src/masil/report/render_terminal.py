"""A table for the terminal, by rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from masil.report.table import Group, Table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable


def terminal_table(table: Table) -> RenderableType:
    """Render every group under its name as a table of its own; names are shown as they are, never read as markup."""
    from rich.console import Group as Lines
    from rich.text import Text

    lines: list[RenderableType] = [Text(table.title, style="bold")]
    for group in table.groups:
        lines += [Text(group.title, style="italic cyan"), _drawn(table, group)]
    return Lines(*lines, *(Text(note, style="dim") for note in table.notes), Text())


def _drawn(table: Table, group: Group) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    drawn.add_column(Text(table.first), min_width=12)
    for name in table.headings():
        drawn.add_column(Text(name, justify="right"), justify="right")
    for row in group.rows:
        label = Text(row.label)
        if row.detail:
            label.append(f" {row.detail}", style="dim")
        texts = row.texts(len(table.columns))
        bold = [cell.best for cell in row.cells] or [False] * len(texts)
        drawn.add_row(label, *(Text(t, style="bold" if b else "") for t, b in zip(texts, bold, strict=True)))
    return drawn
