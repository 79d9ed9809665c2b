"""A table as Markdown, LaTeX, HTML and for the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from masil.report.table import Group, Row, Table, Value

if TYPE_CHECKING:
    from jinja2 import Environment
    from rich.console import RenderableType

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", "−": r"$-$", "–": "--", "—": "---", "…": r"\dots{}",
    "×": r"$\times$", "·": r"$\cdot$", "≥": r"$\ge$", "‖": r"$\|$", "’": "'", "“": "``", "”": "''",
}  # fmt: skip


def markdown_table(table: Table) -> str:
    """Give an aligned table for each group, so that published and measured rows share no column; the best is bold."""
    blocks = [f"**{escaped(table.title)}**"]
    for group in table.groups:
        blocks += [f"*{escaped(group.title)}*", _markdown_group(table, group)]
    if table.notes:
        blocks.append("\n".join(f"- {escaped(note)}" for note in table.notes))
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """Keep what is Markdown in a name from acting as such, and a value on its line."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Show text as code in Markdown; the fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{'`' * (longest + 1)}{pad}{text}{pad}{'`' * (longest + 1)}"


def _markdown_group(table: Table, group: Group) -> str:
    lines = [[escaped(table.first), *map(escaped, table.headings())]]
    for row in group.rows:
        label = escaped(row.label) + (f" ({escaped(row.detail)})" if row.detail else "")
        lines.append([label, *map(_markdown_value, row.cells(len(table.columns)))])
    return _aligned(lines)


def _markdown_value(value: Value) -> str:
    text = f"[{value.words}]({value.link})" if value.link else escaped(value.text())
    return f"**{text}**" if value.best else text


def _aligned(lines: list[list[str]]) -> str:
    """Give Markdown's lines of a table: a heading, then rows; the first column to the left, the others to the right."""
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    rows = []
    for first, *others in [lines[0], rule, *lines[1:]]:
        numbers = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        rows.append(f"| {' | '.join([first.ljust(widths[0]), *numbers])} |")
    return "\n".join(rows)


def terminal_table(table: Table) -> RenderableType:
    """Give every group under its name as a table of its own; names are shown as they are, never read as markup."""
    from rich import box
    from rich.console import Group as Lines
    from rich.table import Table as RichTable
    from rich.text import Text

    lines: list[RenderableType] = [Text(table.title, style="bold")]
    for group in table.groups:
        grid = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        grid.add_column(Text(table.first), min_width=12)
        for name in table.headings():
            grid.add_column(Text(name, justify="right"), justify="right")
        for row in group.rows:
            label = Text(row.label)
            label.append(f" {row.detail}" if row.detail else "", style="dim")
            cells = row.cells(len(table.columns))
            grid.add_row(label, *(Text(value.text(), style="bold" if value.best else "") for value in cells))
        lines += [Text(group.title, style="italic cyan"), grid]
    return Lines(*lines, *(Text(note, style="dim") for note in table.notes), Text())


def templates() -> Environment:
    """Give the templates of this folder, which escape whatever is put into them."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def html_table(table: Table) -> str:
    """Give a table that a screen reader can follow, in a region that scrolls sideways where the page is narrow."""
    return str(templates().get_template("table.html.jinja").render(table=table)).strip()


def latex_table(table: Table) -> str:
    """Give a `table*` for each group, with shared headings over a rule; one wider than the page is made to fit.

    The document needs booktabs and graphicx.
    """
    floats = ("\n".join(_latex_group(table, group)) for group in table.groups)
    notes = f"\n\n\\noindent{{\\scriptsize {tex(' '.join(table.notes))}\\par}}" if table.notes else ""
    return "\n\n".join(floats) + notes + "\n"


def tex(text: str) -> str:
    """Write text so that LaTeX shows it as it is."""
    return "".join(SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _latex_group(table: Table, group: Group) -> Iterator[str]:
    count = len(table.columns)
    yield "% needs \\usepackage{booktabs,graphicx}"
    yield "\\begin{table*}"
    yield "\\centering\\footnotesize\\setlength{\\tabcolsep}{4pt}"
    yield f"\\caption{{{tex(table.title)} \\textit{{{tex(group.title)}}}}}"
    yield "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%"
    yield f"\\begin{{tabular}}{{l{'r' * count}}}"
    yield "\\toprule"
    if any(column.over for column in table.columns):
        heads, rules, start = [""], [], 2
        for name, width in table.spans():
            heads.append(f"\\multicolumn{{{width}}}{{c}}{{{tex(name)}}}")
            rules += [f"\\cmidrule(lr){{{start}-{start + width - 1}}}"] * bool(name)
            start += width
        yield " & ".join(heads) + r" \\ " + " ".join(rules)
    yield " & ".join([tex(table.first), *(_latex_stack(tex(column.name).split()) for column in table.columns)]) + r" \\"
    yield "\\midrule"
    yield from (_latex_row(row, count) for row in group.rows)
    yield "\\bottomrule"
    yield "\\end{tabular}}"
    yield "\\end{table*}"


def _latex_stack(words: list[str]) -> str:
    """Put the words of a heading below each other, so that a long one does not widen its column."""
    return r"\shortstack[r]{" + r"\\".join(words) + "}" if len(words) > 1 else "".join(words)


def _latex_row(row: Row, columns: int) -> str:
    label = tex(row.label) + (f" {{\\scriptsize ({tex(row.detail)})}}" if row.detail else "")
    if not row.values:
        return f"{label} & \\multicolumn{{{columns}}}{{c}}{{\\textit{{{tex(row.remark)}}}}} \\\\"
    return " & ".join([label, *map(_latex_value, row.values)]) + r" \\"


def _latex_value(value: Value) -> str:
    mean, sign, deviation = (tex(part) for part in value.text().partition(" ± "))
    text = f"\\textbf{{{mean}}}" if value.best else mean
    return f"{text}{{\\tiny{sign}{deviation}}}" if sign else text
