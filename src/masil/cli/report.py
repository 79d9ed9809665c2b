"""`masil report`: tables, figures and pages from runs that were made."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from masil.cli.options import option
from masil.cli.output import WIDE, say

if TYPE_CHECKING:
    from rich.console import Console

    from masil.benchmark import RunRecord


class Format(StrEnum):
    """What a report can be."""

    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"
    html = "html"


SUFFIXES = {".md": Format.markdown, ".tex": Format.latex, ".html": Format.html}


def report(
    runs: Annotated[Path, typer.Argument(help="A run.json, the folder of a run, or a folder of runs.")],
    form: Annotated[
        Format | None, option("--format", text="What to make; by default what --out ends in, else terminal.")
    ] = None,
    out: Annotated[
        Path | None,
        option("--out", "-o", text="The file to write; for html it may be a folder, by default that of the runs."),
    ] = None,
    check: Annotated[
        Path | None, option(text="Only say whether this file is what would be written; exit with 1 if not.")
    ] = None,
    keep: Annotated[
        Path | None, option(text="Copy the runs to this folder of results; refuses incomplete or untraceable runs.")
    ] = None,
    figures: Annotated[
        Path | None, option(text="Also write every figure into this folder, as SVG, PDF and PNG.")
    ] = None,
) -> None:
    """Show runs beside published results: on the terminal, as Markdown, LaTeX, or one HTML page."""
    from masil.files import write_bytes
    from masil.methods import METHODS
    from masil.report import read_results, write_report

    records = read_results(runs)
    if keep is not None:
        _keep(records, keep)
        return
    if figures is not None:
        _draw(records, figures)
    # One run alone is not asked for the other methods; a folder of runs is.
    expected = tuple(METHODS) if runs.is_dir() and not (runs / "run.json").is_file() else ()
    file = check or out
    chosen = form or (SUFFIXES.get(file.suffix, Format.terminal) if file else Format.terminal)
    if check is not None:
        _refuse(record for record in records if record.waiting is None)
        _check(check, _text(records, expected, chosen), f"masil report {runs} -o {check}")
    elif chosen is Format.html and (out is None or out.suffix != ".html"):
        say(f"The report is {write_report(records, out or (runs if runs.is_dir() else runs.parent))}.")
    elif out is not None:
        write_bytes(out, _text(records, expected, chosen).encode())
        say(f"The report is {out}.")
    elif chosen is Format.terminal:
        from rich.console import Console

        _show(records, expected, Console())
    else:
        typer.echo(_text(records, expected, chosen), nl=False)


def _text(records: "Sequence[RunRecord]", expected: Sequence[str], chosen: Format) -> str:
    from rich.console import Console

    from masil.report import html_report, results_latex, results_markdown

    match chosen:
        case Format.html:
            return html_report(records)
        case Format.markdown:
            return results_markdown(records, expected)
        case Format.latex:
            return results_latex(records, expected)
        case Format.terminal:
            text = StringIO()
            _show(records, expected, Console(file=text, width=WIDE, color_system=None))
            return text.getvalue()


def _show(records: "Sequence[RunRecord]", expected: Sequence[str], console: "Console") -> None:
    from masil.report import tables, terminal_table

    for table in tables(records, expected):
        console.print(terminal_table(table))


def _refuse(records: "Iterable[RunRecord]") -> None:
    """End where a record cannot be believed."""
    from masil.report import fault

    sentences = [
        fault(record) or (record.waiting and f"The run of '{record.method}' waits: {record.waiting}.")
        for record in records
    ]
    for sentence in filter(None, sentences):
        say(sentence, json=True)
    if any(sentences):
        raise typer.Exit(1)


def _keep(records: "Sequence[RunRecord]", folder: Path) -> None:
    from masil.benchmark import write_run
    from masil.report import result_name

    _refuse(records)
    for record in records:
        write_run(record, folder / result_name(record))
    say(f"{len(records)} runs are in {folder} now.")


def _check(file: Path, text: str, command: str) -> None:
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        say(f"{file} is current.")
        return
    say(
        f"{file} is not what the runs say now; `{command}` brings it up to date."
        if file.is_file()
        else f"There is no {file}; `{command}` makes it.",
        json=True,
    )
    raise typer.Exit(1)


def _draw(records: "Sequence[RunRecord]", folder: Path) -> None:
    from masil.report import pictures, save

    for protocol in dict.fromkeys(record.protocol for record in records):
        for picture in pictures(protocol, records):
            for kind in ("svg", "pdf", "png"):
                save(picture.figure, folder / f"{picture.name}.{kind}")
    say(f"The figures are in {folder}.")
