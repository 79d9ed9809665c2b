"""The page of `masil reproduce`: what of MASIL replicates, then every table and figure beside the paper's.

`masil report` makes the same page from runs that were kept.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from masil.benchmark import ALL, BUDGETS, PARTS, Budget, RunRecord, plan_reproduction
from masil.report.claims import Claim, claims
from masil.report.figures import Cosines, cosines_by_session
from masil.report.measured import OURS, by_shots, draws_of, name_of, slug, title_of, with_shots
from masil.report.published import REMARKS
from masil.report.render import code, escaped, markdown_table
from masil.report.style import save
from masil.report.table import Column, Group, Row, Table, Value
from masil.report.tables import MEASURED, ablation_of, concept_table, session_table
from masil.report.traced import portable
from masil.storage import write_bytes
from masil.wording import duration

HEADER = "<!-- Made by `masil reproduce`; change the runs, not this file. -->"
FILE = "what-replicates.md"
Pictures = dict[str, tuple[str, dict[str, Cosines]]]  # the title of each and its lines by method, by file
COLLAPSE = ("nc1", "nc1_ratio", "equiangular_means", "nc3", "nc4")


def write_reproduction(records: Sequence[RunRecord], parts: Sequence[str], budget: Budget, folder: Path) -> Path:
    """Write the page and its figures, and give the page's path."""
    write_pictures(_pictures(records, parts, budget, "figures/"), folder)
    page = folder / FILE
    write_bytes(page, reproduction_page(records, parts, budget).encode())
    return page


def replication_pages(records: Sequence[RunRecord]) -> dict[str, str]:
    """Give the pages that runs of the paper's pipeline make, by file name: one for each budget that was played."""
    return {
        page_of(budget): reproduction_page(runs, ALL, budget, f"images/{budget.name}-")
        for budget, runs in replications(records)
    }


def replication_pictures(records: Sequence[RunRecord]) -> Pictures:
    """Give what the pictures of `replication_pages` show, by the files that these pages name."""
    drawn = [_pictures(runs, ALL, budget, f"images/{budget.name}-") for budget, runs in replications(records)]
    return {file: picture for pictures in drawn for file, picture in pictures.items()}


def write_pictures(shown: Pictures, folder: Path) -> None:
    """Write pictures beside the page of a folder."""
    for file, (title, lines) in shown.items():
        save(cosines_by_session(lines, title=title), folder / file)


def page_of(budget: Budget) -> str:
    """Name the page of a budget's runs that were kept."""
    return f"what-replicates-{budget.name}.md"


def replications(records: Sequence[RunRecord]) -> Iterator[tuple[Budget, list[RunRecord]]]:
    """Yield each budget that was played with its runs, this package's MASIL among them."""
    for budget in BUDGETS.values():
        bases = plan_reproduction(ALL, budget, Path())
        rows = {(base.recipe.name, method) for base in bases for method in base.methods}
        runs = [run for run in records if run.views == 1 and (run.recipe, run.method) in rows]
        replicated = {run.protocol for run in runs if run.method != OURS}  # this package's alone is no replication
        if replicated:
            yield budget, [run for run in runs if run.protocol in replicated]


def reproduction_page(
    records: Sequence[RunRecord], parts: Sequence[str], budget: Budget, pictures: str = "figures/"
) -> str:
    """Give the page in Markdown; `pictures` is what the files of its pictures begin with."""
    return "\n".join(_page(records, parts, budget, pictures)) + "\n"


def _page(records: Sequence[RunRecord], parts: Sequence[str], budget: Budget, pictures: str) -> Iterator[str]:
    protocols = list(dict.fromkeys(record.protocol for record in records))
    drawn = _drawn(records)
    most = max((len(with_shots(record, standard=False).draws) for record in records), default=0)
    yield HEADER
    yield "# What of MASIL replicates\n"
    yield (
        f"The paper's own pipeline, played by masil. Budget `{budget.name}`: {budget.words}. All figures here are of "
        "this budget; accuracies in per cent.\n"
    )
    yield "## The paper's claims\n"
    yield (
        f"Differences between two rows on the same shots: the mean over {most} draws and the interval that holds it "
        "with 95 % confidence (Student's t). *Confirmed* is an interval on the paper's side of 0, *contradicted* one "
        "on the other side, *not confirmed* one that holds 0: it shows neither a difference nor that there is none.\n"
    )
    yield _claims_table(claims(records))
    for part in ("table1", "table2", "table3"):
        (protocol,), methods = PARTS[part]
        if part in parts and protocol in protocols:
            runs = [record for record in records if record.method in methods]
            yield f"## {title_of(protocol)}\n"
            yield markdown_table(session_table(protocol, [*_with_shots(runs, True), *_with_shots(runs, False)]))
    if {"ablation", "characters"} & set(parts):
        yield "## Ablation\n"
        yield markdown_table(_ablation(records, protocols, budget))
    if {"figure", "characters"} & set(parts):
        yield "## Class means and the vectors of other classes\n"
        for protocol in _cosines(drawn, parts):
            yield f"![Average cosines by session: {_title(protocol, budget)}]({_file(pictures, protocol)})\n"
        yield markdown_table(_cosine_table(drawn, budget))
    if {"concepts", "characters"} & set(parts):
        yield "## Concepts\n"
        yield markdown_table(concept_table([record for record in drawn if record.method == "masil-as-written"]))
    yield "## Base sessions\n"
    yield markdown_table(_base_table(records))
    yield "## How it was measured\n"
    for command in dict.fromkeys(portable(command) for record in records for command in record.stamped("command")):
        yield f"- {code(command)}"
    for record in by_shots(records):
        yield (
            f"- {escaped(name_of(record.method))} on {title_of(record.protocol)}: {draws_of(record)}, "
            f"{duration(record.seconds)}, commit {', '.join(filter(None, record.stamped('commit'))) or 'unknown'}"
            f"{_choices(record)}"
        )


def _choices(record: RunRecord) -> str:
    """Say what a method has chosen by itself: its authors may have used another value."""
    chosen = ", ".join(f"{escaped(name)} = {value}" for name, value in record.extras.get("chosen", {}).items())
    return f"; chosen on base classes that played novel: {chosen}" if chosen else ""


def _claims_table(every: Sequence[Claim]) -> str:
    lines = ["| data set | claim | paper | here | verdict |", "| --- | --- | ---: | ---: | --- |"]
    lines += [
        f"| {title_of(claim.protocol) if claim.protocol else '–'} | {escaped(claim.text)} | {claim.paper} | "
        f"{claim.here()} | {escaped(claim.verdict())} |"
        for claim in every
    ]
    return "\n".join([*lines, ""])


def _ablation(records: Sequence[RunRecord], protocols: Sequence[str], budget: Budget) -> Table:
    """Give the paper's five rows and this package's as a sixth, on the standard shots and over draws."""
    groups = {
        f"{MEASURED}, {kind}, budget {budget.name}": {
            (run.method, run.protocol): run for run in _with_shots(records, standard)
        }
        for kind, standard in (("standard shots", True), ("draws", False))
    }
    return ablation_of(protocols, {title: runs for title, runs in groups.items() if runs}, REMARKS["ablation"])


def _with_shots(records: Sequence[RunRecord], standard: bool) -> list[RunRecord]:
    """Give the runs that have standard shots, or other draws, with these alone."""
    return [run for record in records if (run := with_shots(record, standard=standard)).draws]


def _drawn(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Give each method's run over draws alone, or else on the standard shots."""
    parts = sorted(by_shots(records), key=lambda run: run.draws[0].draw is not None)
    return list({(run.protocol, run.method): run for run in parts}.values())


def _cosines(records: Sequence[RunRecord], parts: Sequence[str]) -> dict[str, dict[str, Cosines]]:
    """Give the lines of each protocol's figure, by method; this package's is not in the paper's."""
    lines: dict[str, dict[str, Cosines]] = {}
    for record in records:
        if {"figure", "characters"} & set(parts) and record.method != OURS and record.extras.get("cosines"):
            lines.setdefault(record.protocol, {})[name_of(record.method)] = record.extras["cosines"]
    return lines


def _pictures(records: Sequence[RunRecord], parts: Sequence[str], budget: Budget, stem: str) -> Pictures:
    lines = _cosines(_drawn(records), parts)
    return {_file(stem, protocol): (_title(protocol, budget), lines[protocol]) for protocol in lines}


def _title(protocol: str, budget: Budget) -> str:
    return f"{title_of(protocol)}, budget {budget.name}"


def _file(stem: str, protocol: str) -> str:
    return f"{stem}{slug(protocol)}-cosines.svg"


def _cosine_table(records: Sequence[RunRecord], budget: Budget) -> Table:
    """Give Avg_{k≠k'} h_k·w_k' after the first and the last session, all images counted."""
    columns = tuple(Column(name, split) for split in ("train", "test") for name in ("base session", "last session"))
    rows = tuple(
        Row(
            f"{name_of(record.method)}, {title_of(record.protocol)}",
            tuple(
                Value(record.extras["cosines"][split][session][1], form=".4f")
                for split in ("train", "test")
                for session in (0, -1)
            ),
        )
        for record in records
        if record.extras.get("cosines")
    )
    notes = ("All images of each class count: training images of the base session, shots, and all test images.",)
    groups = (Group(f"{MEASURED}, budget {budget.name}", rows),)
    return Table("Average cosine to the vectors of other classes", "model", columns, groups, notes=notes)


def _base_table(records: Sequence[RunRecord]) -> Table:
    """Give how far each base session has collapsed, from its first measured epoch to its last."""
    columns = (Column("epochs"), Column("minutes"), *(Column(name, "first → last") for name in COLLAPSE))
    rows: dict[str, Row] = {}
    for record in records:
        history = record.extras.get("history", [])
        if record.recipe is None or record.recipe in rows or not history:
            continue
        watched = [row for row in history if "nc1" in row]
        minutes = sum(row.get("seconds", 0.0) for row in history) / 60
        values = [Value(float(len(history)), form=".0f"), Value(minutes, form=".1f")]
        for name in COLLAPSE:
            pair = [f"{row[name]:.3g}" for row in (watched[0], watched[-1])] if watched and name in watched[0] else []
            values.append(Value(words=" → ".join(pair) or "–"))
        rows[record.recipe] = Row(record.recipe, tuple(values))
    return Table("Base sessions and their collapse", "recipe", columns, (Group("measured", tuple(rows.values())),))
