"""A table as LaTeX that needs booktabs and, where it is wider than a page, graphicx."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from masil.report.table import Cell, Group, Row, Table

PAGE, WIDTH = 48, 480  # rows, and points, that fit on a page

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", "−": r"$-$", "–": "--", "—": "---", "…": r"\dots{}",
    "×": r"$\times$", "·": r"$\cdot$", "≥": r"$\ge$", "‖": r"$\|$", "’": "'", "“": "``", "”": "''",
}  # fmt: skip


def latex_table(table: Table) -> str:
    """Render as a `table*` with a caption, shared headings over a rule, and the groups under their names.

    What is too long for a page goes on in a further one, a group never being divided.
    """
    pages = _pages(table.groups)
    floats = (_lines(table, page, number, len(pages)) for number, page in enumerate(pages, 1))
    return "\n\n".join(map("\n".join, floats)) + "\n"


def _pages(groups: Sequence[Group]) -> list[list[Group]]:
    pages: list[list[Group]] = [[]]
    for group in groups:
        if pages[-1] and sum(1 + len(one.rows) for one in (*pages[-1], group)) > PAGE:
            pages.append([])
        pages[-1].append(group)
    return pages


def tex(text: str) -> str:
    """Write text so that LaTeX shows it as it is."""
    return "".join(SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _lines(table: Table, groups: Sequence[Group], page: int, pages: int) -> Iterator[str]:
    wide = len(table.columns) + 1
    shrunk = _width(table, groups) > WIDTH
    part = f" ({page} of {pages})" if pages > 1 else ""
    yield "% needs \\usepackage{booktabs" + (",graphicx}" if shrunk else "}")
    yield "\\begin{table*}"
    yield "\\centering\\footnotesize\\setlength{\\tabcolsep}{4pt}"
    yield f"\\caption{{{tex(table.title + part)}}}"
    yield ("\\resizebox{\\textwidth}{!}{" if shrunk else "") + f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}"
    yield "\\toprule"
    if any(column.over for column in table.columns):
        yield from _shared(table)
    yield " & ".join([tex(table.first), *(_heading(column.name) for column in table.columns)]) + r" \\"
    for group in groups:
        yield "\\midrule"
        yield f"\\multicolumn{{{wide}}}{{l}}{{\\textit{{{tex(group.title)}}}}} \\\\"
        yield from (_row(row, len(table.columns)) for row in group.rows)
    yield "\\bottomrule"
    yield "\\end{tabular}" + ("}" if shrunk else "")
    if table.notes and page == pages:
        notes = tex(" ".join(table.notes))
        yield f"\\par\\smallskip\\begin{{minipage}}{{\\linewidth}}\\scriptsize {notes}\\end{{minipage}}"
    yield "\\end{table*}"


def _width(table: Table, groups: Sequence[Group]) -> float:
    """Estimate the points a table needs: 4.2 a letter, 3 a letter of a deviation, and 8 between columns."""
    lines = [[row.label + row.detail, *row.texts(len(table.columns))] for group in groups for row in group.rows]
    lines.append([table.first, *(max(column.name.split(), key=len, default="") for column in table.columns)])
    return sum(8 + max(map(_points, column)) for column in zip(*lines, strict=True))


def _points(text: str) -> float:
    mean, _, deviation = text.partition(" ± ")
    return 4.2 * len(mean) + (3 * (len(deviation) + 2) if deviation else 0)


def _shared(table: Table) -> Iterator[str]:
    cells, rules, start = [""], [], 2
    for name, width in table.spans():
        cells.append(f"\\multicolumn{{{width}}}{{c}}{{{tex(name)}}}")
        if name:
            rules.append(f"\\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    yield " & ".join(cells) + r" \\ " + " ".join(rules)


def _row(row: Row, columns: int) -> str:
    label = tex(row.label) + (f" {{\\scriptsize ({tex(row.detail)})}}" if row.detail else "")
    if not row.cells:
        return f"{label} & \\multicolumn{{{columns}}}{{c}}{{\\textit{{{tex(row.remark)}}}}} \\\\"
    return " & ".join([label, *map(_cell, row.cells)]) + r" \\"


def _heading(name: str) -> str:
    """Put the words of a heading below each other, so that a long one does not widen its column."""
    words = tex(name).split()
    return "\\shortstack[r]{" + r"\\".join(words) + "}" if len(words) > 1 else tex(name)


def _cell(cell: Cell) -> str:
    mean, sign, deviation = (tex(part) for part in cell.text().partition(" ± "))
    text = f"\\textbf{{{mean}}}" if cell.best else mean
    return f"{text}{{\\tiny{sign}{deviation}}}" if sign else text
