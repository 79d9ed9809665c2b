"""`masil report`: tables, figures and pages from runs that were made."""

from collections.abc import Sequence
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
        Format | None,
        typer.Option("--format", help="What to make; else what --out ends in, else terminal.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; for html it may be a folder, that of the runs if not given."),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Only say whether this file is what would be written; exit 1 if not.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Put the runs into this folder of results; refuses what cannot be traced or is incomplete."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure into this folder, as SVG, PDF and PNG.")
    ] = None,
) -> None:
    """Show runs beside what was published: on the terminal, as Markdown, LaTeX, or one HTML page."""
    from masil.report import read_results

    records = read_results(runs)
    if keep is not None:
        _keep(records, keep)
        return
    expected = _expected(runs)
    named = check or out
    chosen = form or (SUFFIXES.get(named.suffix, Format.terminal) if named else Format.terminal)
    if figures is not None:
        _draw(records, figures)
    if check is not None:
        _refuse(records)
        _check(check, _text(records, expected, chosen), f"masil report {runs} -o {check}")
    elif chosen is Format.html and (out is None or out.suffix != ".html"):
        from masil.report import write_report

        page = write_report(records, out or (runs if runs.is_dir() else runs.parent))
        typer.echo(f"The report is {page}.")
    elif out is not None:
        from masil.files import write_bytes

        write_bytes(out, _text(records, expected, chosen).encode())
        typer.echo(f"The report is {out}.")
    elif chosen is Format.terminal:
        from rich.console import Console

        _show(records, expected, Console())
    else:
        typer.echo(_text(records, expected, chosen), nl=False)


def _expected(runs: Path) -> tuple[str, ...]:
    """Give the methods that a folder of runs might hold; one run alone is not asked for the others."""
    from masil.methods import METHODS

    return tuple(METHODS) if runs.is_dir() and not (runs / "run.json").is_file() else ()


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
            _show(records, expected, Console(file=text, width=160, color_system=None))
            return text.getvalue()


def _show(records: "Sequence[RunRecord]", expected: Sequence[str], console: "Console") -> None:
    from masil.report import tables, terminal_table

    for table in tables(records, expected):
        console.print(terminal_table(table))


def _refuse(records: "Sequence[RunRecord]") -> None:
    """End where a record cannot be believed and does not say so itself."""
    from masil.report import fault

    wrong = [sentence for record in records if record.waiting is None and (sentence := fault(record)) is not None]
    for sentence in wrong:
        typer.echo(sentence, err=True)
    if wrong:
        raise typer.Exit(1)


def _keep(records: "Sequence[RunRecord]", folder: Path) -> None:
    from masil.benchmark import write_record
    from masil.report import result_name

    _refuse(records)
    for record in records:
        write_record(record, folder / result_name(record))
    typer.echo(f"{len(records)} runs are in {folder} now.")


def _check(file: Path, text: str, command: str) -> None:
    if not file.is_file():
        typer.echo(f"There is no {file}; `{command}` makes it.", err=True)
        raise typer.Exit(1)
    if file.read_text(encoding="utf-8") != text:
        typer.echo(f"{file} is not what the runs say now; `{command}` brings it up to date.", err=True)
        raise typer.Exit(1)
    typer.echo(f"{file} is current.")


def _draw(records: "Sequence[RunRecord]", folder: Path) -> None:
    from masil.report import pictures, save

    for protocol in dict.fromkeys(record.protocol for record in records):
        for picture in pictures(protocol, records):
            for kind in ("svg", "pdf", "png"):
                save(picture.figure, folder / f"{picture.name}.{kind}")
    typer.echo(f"The figures are in {folder}.")
