"""`masil report`: tables, figures and pages from runs that were made."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from masil.cli.options import option, refuse_unwritable
from masil.cli.output import say
from masil.errors import InputError, lookup
from masil.wording import plural

if TYPE_CHECKING:
    from masil.benchmark import RunRecord


Format = StrEnum("Format", ["terminal", "markdown", "latex", "html"])
ENDLESS = 10_000  # columns of a page that nothing on it is wrapped or cut for
SUFFIXES = {".txt": Format.terminal, ".md": Format.markdown, ".tex": Format.latex, ".html": Format.html}


def report(
    runs: Annotated[Path, typer.Argument(help="A run.json, the folder of a run, or a folder of runs.")],
    form: Annotated[
        Format | None, option("--format", text="What to make; by default what --out ends in, else terminal.")
    ] = None,
    out: Annotated[
        Path | None,
        option("--out", "-o", text="The file to write; for html it may be a folder, by default that of the runs."),
    ] = None,
    only: Annotated[
        list[str] | None,
        option(text="Show only runs with this text in their protocol or setting, such as 'cub200'. May be repeated."),
    ] = None,
    methods: Annotated[str | None, option(text="Show only these methods: names separated by commas.")] = None,
    ours: Annotated[str, typer.Option(help="The method that the others are compared with.")] = "masil",
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
    from masil.benchmark import write_run
    from masil.report import (
        pictures,
        read_results,
        replication_pictures,
        result_name,
        save,
        select,
        write_pictures,
        write_report,
    )
    from masil.storage import write_bytes

    file = check or out
    if form is None and file is not None and file.suffix not in SUFFIXES:
        raise InputError(f"{file} ends in none of {', '.join(SUFFIXES)}; rename it, or say what to make with --format.")
    chosen = form or (SUFFIXES[file.suffix] if file else Format.terminal)
    for folder in (keep, figures, out and out.parent):
        refuse_unwritable(folder)
    records = select(read_results(runs), only or (), [name.strip() for name in methods.split(",")] if methods else ())
    if ours != "masil":
        lookup("method among these runs", ours, {record.method: record for record in records})
    if keep is not None:
        _refuse(records)
        for record in records:
            write_run(record, keep / result_name(record))
        say(f"Kept in {keep}: {plural(len(records), 'run')}.")
        return
    if figures is not None:
        for picture in pictures(records, ours):
            for kind in ("svg", "pdf", "png"):
                save(picture.figure, figures / f"{picture.name}.{kind}")
        say(f"The figures are in {figures}.")
    if chosen is Format.html and check is None and (out is None or out.suffix != ".html"):
        page = write_report(records, out or (runs if runs.is_dir() else runs.parent), ours=ours)
        say(f"The report is {page}.")
    elif file is None:
        _print(records, ours, chosen)
    elif check is not None:
        _refuse([record for record in records if record.waiting is None], runs)
        shown = replication_pictures(records) if chosen is Format.markdown else {}
        pages = dict.fromkeys(check.parent / file for file in shown) | _pages(records, ours, chosen, check)
        _check(pages, f"masil report {runs} -o {check}")
    else:
        for page, text in _pages(records, ours, chosen, file).items():
            write_bytes(page, text.encode())
        write_pictures(replication_pictures(records) if chosen is Format.markdown else {}, file.parent)
        say(f"The report is {out}.")


def _print(records: "Sequence[RunRecord]", ours: str, chosen: Format) -> None:
    """Print a report; on a terminal with its colours, and as wide as that is, or as its longest words need."""
    from rich.console import Console, Group

    from masil.report import tables, terminal_table

    console = Console()
    if chosen is Format.terminal and console.is_terminal:
        page = Group(*map(terminal_table, tables(records, ours)))
        console.width = max(console.width, Console(width=ENDLESS).measure(page).minimum)
        console.print(page)
    else:
        here = Path("page")
        typer.echo(_pages(records, ours, chosen, here)[here], nl=False)


def _pages(records: "Sequence[RunRecord]", ours: str, chosen: Format, file: Path) -> dict[Path, str]:
    """Give what is written to which file: pages of the methods and of what replicates stand beside one in Markdown."""
    from rich.console import Console

    from masil.report import (
        html_report,
        methods_markdown,
        replication_pages,
        results_latex,
        results_markdown,
        tables,
        terminal_table,
    )

    match chosen:
        case Format.html:
            return {file: html_report(records, ours)}
        case Format.markdown:
            others = {"methods.md": methods_markdown(), **replication_pages(records)}
            text = results_markdown(records, ours, file.parent)
            return {file: text} | {file.parent / name: page for name, page in others.items()}
        case Format.latex:
            return {file: results_latex(records, ours)}
        case Format.terminal:
            screen = Console(file=StringIO(), width=ENDLESS, color_system=None)
            with screen.capture() as printed:
                screen.print(*map(terminal_table, tables(records, ours)), sep="\n")
            return {file: printed.get()}


def _refuse(records: "Iterable[RunRecord]", place: Path | None = None) -> None:
    """End where a record cannot be believed, or a ladder in the folder of the records."""
    from masil.report import fault, ladder_faults

    sentences = [
        fault(record) or (record.waiting and f"The run of '{record.method}' waits: {record.waiting}.")
        for record in records
    ]
    sentences += ladder_faults(place) if place else ()
    for sentence in filter(None, sentences):
        say(sentence, json=True)
    if any(sentences):
        raise typer.Exit(1)


def _check(pages: Mapping[Path, str | None], command: str) -> None:
    """End where a file is not what would be written; of a picture (None) it is enough to be there."""
    for file, text in pages.items():
        if not file.is_file():
            say(f"There is no {file}; `{command}` makes it.", json=True)
        elif text is not None and file.read_text(encoding="utf-8") != text:
            say(f"{file} is not what the runs say now; `{command}` brings it up to date.", json=True)
        else:
            say(f"{file} is current.")
            continue
        raise typer.Exit(1)
