"""The report as one HTML file that opens without a network: style, tables and figures inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from masil.benchmark import RunRecord
from masil.errors import InputError
from masil.files import write_bytes
from masil.report.canvas import inline_svg, save
from masil.report.facts import published
from masil.report.measured import (
    average,
    checked,
    detail_of,
    draws_of,
    last,
    leading,
    name_of,
    over_draws,
    title_of,
)
from masil.report.pictures import Picture, pictures, slug
from masil.report.provenance import again, provenance
from masil.report.render_html import html_table
from masil.report.table import Cell
from masil.report.tables import ABLATION, ablation_table, balance_table, concept_table, session_table


def write_report(records: Sequence[RunRecord], folder: Path, kinds: Sequence[str] = ("svg", "pdf")) -> Path:
    """Write `folder`/report.html, and its figures as `folder`/figures/*.svg and *.pdf; give the page's path."""
    ordered = _some(records)
    drawn = _drawn(ordered)
    for picture in (p for group in drawn.values() for p in group):
        for kind in kinds:
            save(picture.figure, folder / "figures" / f"{picture.name}.{kind}")
    page = folder / "report.html"
    write_bytes(page, _page(ordered, drawn).encode())
    return page


def html_report(records: Sequence[RunRecord]) -> str:
    """Give the page alone."""
    ordered = _some(records)
    return _page(ordered, _drawn(ordered))


def _some(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    if not records:
        raise InputError("There is no run to report; `masil run --out FOLDER` makes one.")
    return checked(records)


def _drawn(records: Sequence[RunRecord]) -> dict[str, list[Picture]]:
    return {protocol: pictures(protocol, records) for protocol in dict.fromkeys(r.protocol for r in records)}


def _page(records: Sequence[RunRecord], drawn: dict[str, list[Picture]]) -> str:
    title = _title(records)
    style = files("masil.report").joinpath("report.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            f'<header><p class="eyebrow">masil report</p><h1>{escape(title)}</h1></header>',
            "<main>",
            *(line for protocol, group in drawn.items() for line in _protocol(protocol, records, group)),
            *_comparisons(records),
            *_measured(records),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _title(records: Sequence[RunRecord]) -> str:
    methods = list(dict.fromkeys(name_of(record.method) for record in records))
    places = list(dict.fromkeys(title_of(record.protocol) for record in records))
    what = methods[0] if len(methods) == 1 else f"{len(methods)} methods"
    return f"{what} on {places[0] if len(places) == 1 else f'{len(places)} data sets'}"


def _protocol(protocol: str, records: Sequence[RunRecord], drawn: Iterable[Picture]) -> Iterator[str]:
    own = [record for record in records if record.protocol == protocol]
    hero = leading(own)
    sessions = len(hero.draws[0].sessions) - 1
    shape = f"{hero.way}-way {hero.shot}-shot, {hero.base_classes} base classes, then {sessions} sessions"
    yield f'<section aria-labelledby="{slug(protocol)}">'
    yield f'<h2 id="{slug(protocol)}">{escape(title_of(protocol))}</h2>'
    yield f'<p class="lead">{escape(shape)}. {escape(name_of(hero.method))}: {escape(detail_of(hero))}.</p>'
    yield _headline(hero)
    yield html_table(session_table(protocol, own))
    yield html_table(balance_table(protocol, own))
    yield from map(_figure, drawn)
    yield "</section>"


def _headline(record: RunRecord) -> str:
    """Show the numbers one looks for first, and, where there is one, MASIL's published figure as such."""
    rows = published(record.protocol)
    theirs = next((row for row in rows if row.method == "MASIL"), None)
    drop = over_draws([draw.performance_drop for draw in record.draws])
    numbers: list[tuple[str, Cell, str]] = [
        ("after the last session", last(record), f"published MASIL {theirs.last:.2f}" if theirs else ""),
        ("average of the sessions", average(record), f"published MASIL {theirs.average:.2f}" if theirs else ""),
        ("novel classes", last(record, "novel"), "after the last session"),
        ("harmonic mean", last(record, "harmonic_mean"), "after the last session"),
        ("performance drop", drop, f"published MASIL {theirs.sessions[0] - theirs.last:.2f}" if theirs else ""),
    ]
    return '<dl class="headline">' + "".join(_number(*number) for number in numbers) + "</dl>"


def _number(name: str, cell: Cell, beside: str) -> str:
    value, _, deviation = cell.text().partition(" ± ")
    spread = f'<span class="spread">±&#8239;{escape(deviation)}</span>' if deviation else ""
    small = f'<dd class="beside">{escape(beside)}</dd>' if beside else ""
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}{spread}</dd>{small}</div>"


def _figure(picture: Picture) -> str:
    svg = inline_svg(picture.figure, picture.name, picture.words)
    return f"<figure>\n{svg}\n<figcaption>{escape(picture.caption)}</figcaption>\n</figure>"


def _comparisons(records: Sequence[RunRecord]) -> Iterator[str]:
    """Show the ablation and the concepts' cosines where a run belongs to them."""
    tables = []
    if any(record.method in ABLATION.values() and record.method != "masil" for record in records):
        tables.append(ablation_table(records))
    if any("concept_cosine" in record.extras for record in records):
        tables.append(concept_table(records))
    if tables:
        yield "<section>"
        yield "<h2>Ablation and concepts</h2>"
        yield from map(html_table, tables)
        yield "</section>"


def _measured(records: Sequence[RunRecord]) -> Iterator[str]:
    yield "<section>"
    yield "<h2>How it was measured, and how to do it again</h2>"
    for record in records:
        what = f"{name_of(record.method)} on {title_of(record.protocol)}, {draws_of(record)}"
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in provenance(record))
        yield f"<details{' open' if len(records) == 1 else ''}><summary>{escape(what)}</summary>"
        yield f'<dl class="facts">{rows}</dl>'
        yield f"<p>Run it again:</p><pre><code>{escape(again(record))}</code></pre></details>"
    yield "</section>"
