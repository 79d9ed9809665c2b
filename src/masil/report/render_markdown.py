"""A table as Markdown: one aligned table a group, so that published and measured rows never share a column."""

from __future__ import annotations

import re

from masil.report.table import Group, Table


def markdown_table(table: Table) -> str:
    """Render with columns padded to one width, figures to the right and the best of a group in bold."""
    blocks = [f"**{escaped(table.title)}**"]
    for group in table.groups:
        blocks += [f"*{escaped(group.title)}*", _group(table, group)]
    if table.notes:
        blocks.append("\n".join(f"- {escaped(note)}" for note in table.notes))
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """Keep what is Markdown in a name from acting as such, and a cell on its line."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Show text as code; the fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _group(table: Table, group: Group) -> str:
    lines = [[escaped(table.first), *map(escaped, table.headings())]]
    for row in group.rows:
        label = escaped(row.label) + (f" ({escaped(row.detail)})" if row.detail else "")
        texts = [escaped(text) for text in row.texts(len(table.columns))]
        bold = [cell.best for cell in row.cells] or [False] * len(texts)
        lines.append([label, *(f"**{text}**" if best else text for text, best in zip(texts, bold, strict=True))])
    widths = [max(3, *(len(line[place]) for line in lines)) for place in range(len(lines[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    rows = [lines[0], rule, *lines[1:]]
    return "\n".join(
        "| "
        + " | ".join([line[0].ljust(widths[0])] + [t.rjust(w) for t, w in zip(line[1:], widths[1:], strict=True)])
        + " |"
        for line in rows
    )
