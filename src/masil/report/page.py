"""The report as one HTML file that opens without a network: style, tables and figures inside."""

from collections.abc import Sequence
from pathlib import Path

from masil.benchmark import RunRecord
from masil.errors import InputError
from masil.report.leaderboard import leaderboards
from masil.report.measured import (
    OURS,
    checked,
    detail_of,
    draws_of,
    leading,
    name_of,
    slug,
    title_of,
)
from masil.report.pictures import Picture, is_named, pictures
from masil.report.published import published
from masil.report.render import html_table, templates
from masil.report.style import inline_svg, save
from masil.report.table import Value
from masil.report.tables import balance_table, comparison_tables, session_table
from masil.report.traced import again, provenance
from masil.storage import write_bytes

HEADLINE = {  # what one looks for first: a title and the figure
    "after the last session": "accuracy",
    "average of the sessions": "average",
    "novel classes": "novel",
    "harmonic mean": "harmonic_mean",
    "performance drop": "performance_drop",
}


def write_report(records: Sequence[RunRecord], folder: Path, ours: str = OURS) -> Path:
    """Write `folder`/report.html, and its figures as `folder`/figures/*.svg and *.pdf; give the page's path.

    Figures that an earlier report left there of the same protocols, and this one does not have, are removed.
    """
    ordered = _some(records)
    drawn = pictures(ordered, ours)
    for picture in drawn:
        for kind in ("svg", "pdf"):
            save(picture.figure, folder / "figures" / f"{picture.name}.{kind}")
    names, protocols = {picture.name for picture in drawn}, {record.protocol for record in ordered}
    for file in (folder / "figures").iterdir():
        if file.suffix in (".svg", ".pdf") and file.stem not in names and is_named(file.stem, protocols):
            file.unlink()
    page = folder / "report.html"
    write_bytes(page, _page(ordered, drawn, ours).encode())
    return page


def html_report(records: Sequence[RunRecord], ours: str = OURS) -> str:
    """Give the page alone."""
    ordered = _some(records)
    return _page(ordered, pictures(ordered, ours), ours)


def _some(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    if not records:
        raise InputError("There is no run to report; `masil run characters --out runs/characters` makes one.")
    return checked(records)


def _page(records: Sequence[RunRecord], drawn: Sequence[Picture], ours: str) -> str:
    methods = list(dict.fromkeys(name_of(record.method) for record in records))
    protocols = list(dict.fromkeys(record.protocol for record in records))
    what = methods[0] if len(methods) == 1 else f"{len(methods)} methods"
    where = title_of(protocols[0]) if len(protocols) == 1 else f"{len(protocols)} data sets"
    measured = [
        {
            "title": f"{name_of(record.method)} on {title_of(record.protocol)}, {draws_of(record)}",
            "facts": list(provenance(record)),
            "again": again(record),
        }
        for record in records
    ]
    return templates().get_template("page.html.jinja").render(
        title=f"{what} on {where}",
        sections=[_section(protocol, records, drawn, ours) for protocol in protocols],
        comparisons=[html_table(table) for table in comparison_tables(records)],
        measured=measured,
    )  # fmt: skip


def _section(protocol: str, records: Sequence[RunRecord], drawn: Sequence[Picture], ours: str) -> dict[str, object]:
    """Give what the page shows of one protocol."""
    runs = [record for record in records if record.protocol == protocol]
    hero = leading(runs, ours)
    shape = f"{hero.way}-way {hero.shot}-shot, {hero.base_classes} base classes"
    boards = leaderboards(protocol, runs, ours) if len(runs) > 1 else []
    tables = [*boards, session_table(protocol, runs, ours), balance_table(protocol, runs)]
    figures = [picture for picture in drawn if picture.protocol == protocol]
    return {
        "id": slug(protocol),
        "title": title_of(protocol),
        "lead": f"{shape}, then {len(hero.draws[0].sessions) - 1} sessions. {name_of(hero.method)}: {detail_of(hero)}.",
        "headline": _headline(hero),
        "tables": [html_table(table) for table in tables],
        "figures": [(inline_svg(one.figure, one.name, one.words), one.caption) for one in figures],
    }


def _headline(record: RunRecord) -> list[tuple[str, str, str, str]]:
    """Give the numbers one looks for first, and, where there is one, MASIL's published figure as such."""
    theirs = next((row for row in published(record.protocol) if row.method == "MASIL"), None)
    beside = dict.fromkeys(("novel", "harmonic_mean"), "after the last session")
    if theirs is not None:
        printed = {"accuracy": theirs.last, "average": theirs.average}
        printed["performance_drop"] = theirs.sessions[0] - theirs.last
        beside |= {name: f"published MASIL {value:.2f}" for name, value in printed.items()}
    numbers = []
    for title, name in HEADLINE.items():
        mean, _, deviation = Value.of(record.over_draws(name)).text().partition(" ± ")
        numbers.append((title, mean, deviation, beside.get(name, "")))
    return numbers
