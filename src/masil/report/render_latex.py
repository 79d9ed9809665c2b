"""A table as LaTeX that needs booktabs and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from masil.report.table import Cell, Row, Table

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", "−": r"$-$", "–": "--", "—": "---", "…": r"\dots{}",
    "×": r"$\times$", "·": r"$\cdot$", "≥": r"$\ge$", "‖": r"$\|$", "’": "'", "“": "``", "”": "''",
}  # fmt: skip


def latex_table(table: Table) -> str:
    """Render as a `table*` with a caption, shared headings over a rule, and the groups under their names."""
    return "\n".join(_lines(table)) + "\n"


def tex(text: str) -> str:
    """Write text so that LaTeX shows it as it is."""
    return "".join(SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _lines(table: Table) -> Iterator[str]:
    wide = len(table.columns) + 1
    yield "% needs \\usepackage{booktabs}"
    yield "\\begin{table*}"
    yield "\\centering\\footnotesize\\setlength{\\tabcolsep}{4pt}"
    yield f"\\caption{{{tex(table.title)}}}"
    yield f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}"
    yield "\\toprule"
    if any(column.over for column in table.columns):
        yield from _shared(table)
    yield " & ".join([tex(table.first), *(tex(column.name) for column in table.columns)]) + r" \\"
    for group in table.groups:
        yield "\\midrule"
        yield f"\\multicolumn{{{wide}}}{{l}}{{\\textit{{{tex(group.title)}}}}} \\\\"
        yield from (_row(row, len(table.columns)) for row in group.rows)
    yield "\\bottomrule"
    yield "\\end{tabular}"
    if table.notes:
        notes = tex(" ".join(table.notes))
        yield f"\\par\\smallskip\\begin{{minipage}}{{\\linewidth}}\\scriptsize {notes}\\end{{minipage}}"
    yield "\\end{table*}"


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


def _cell(cell: Cell) -> str:
    text = tex(cell.text())
    return f"\\textbf{{{text}}}" if cell.best else text
