"""A table as HTML that a screen reader can follow: a caption, and a scope for every heading."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from masil.report.table import Cell, Group, Row, Table


def html_table(table: Table) -> str:
    """Render in a region of its own that scrolls sideways, by keyboard too, where the page is narrow."""
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return "\n".join(
        [
            f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">',
            "<table>",
            f"<caption>{escape(table.title)}</caption>",
            *_head(table),
            *(line for group in table.groups for line in _body(group, len(table.columns))),
            "</table>",
            "</div>",
            f'<ul class="notes">{notes}</ul>' if notes else "",
        ]
    )


def _head(table: Table) -> Iterator[str]:
    yield "<thead>"
    if any(column.over for column in table.columns):
        first = f'<th scope="col" rowspan="2">{escape(table.first)}</th>'
        spans = (
            f'<th scope="colgroup" colspan="{width}" class="over">{escape(name)}</th>'
            if name
            else f'<td colspan="{width}"></td>'
            for name, width in table.spans()
        )
        yield f"<tr>{first}{''.join(spans)}</tr>"
        first = ""
    else:
        first = f'<th scope="col">{escape(table.first)}</th>'
    names = "".join(f'<th scope="col">{escape(column.name)}</th>' for column in table.columns)
    yield f"<tr>{first}{names}</tr>"
    yield "</thead>"


def _body(group: Group, columns: int) -> Iterator[str]:
    yield "<tbody>"
    yield f'<tr class="group"><th scope="rowgroup" colspan="{columns + 1}">{escape(group.title)}</th></tr>'
    yield from (_row(row, columns) for row in group.rows)
    yield "</tbody>"


def _row(row: Row, columns: int) -> str:
    detail = f' <span class="detail">{escape(row.detail)}</span>' if row.detail else ""
    cells = "".join(map(_cell, row.cells)) or f'<td class="none" colspan="{columns}">{escape(row.remark)}</td>'
    return f'<tr><th scope="row">{escape(row.label)}{detail}</th>{cells}</tr>'


def _cell(cell: Cell) -> str:
    number, plus_minus, deviation = cell.text().partition(" ± ")
    text = escape(number) + (f' <span class="spread">±&#8239;{escape(deviation)}</span>' if plus_minus else "")
    return f"<td><b>{text}</b></td>" if cell.best else f"<td>{text}</td>"
