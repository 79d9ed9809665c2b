"""A table for the terminal, by rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from masil.report.table import Table

if TYPE_CHECKING:
    from rich.table import Table as RichTable


def terminal_table(table: Table) -> RichTable:
    """Render with the groups as sections; names are shown as they are, never read as markup."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=Text(table.title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    drawn.add_column(Text(table.first), overflow="fold", min_width=12)
    for name in table.headings():
        drawn.add_column(Text(name, justify="right"), justify="right")
    for group in table.groups:
        drawn.add_row(Text(group.title, style="italic cyan"))
        for row in group.rows:
            label = Text(row.label)
            if row.detail:
                label.append(f" {row.detail}", style="dim")
            texts = row.texts(len(table.columns))
            bold = [cell.best for cell in row.cells] or [False] * len(texts)
            drawn.add_row(label, *(Text(t, style="bold" if b else "") for t, b in zip(texts, bold, strict=True)))
        drawn.add_section()
    if table.notes:
        drawn.caption = Text("\n".join(table.notes), style="dim", justify="left")
    return drawn
