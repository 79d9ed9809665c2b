"""All runs of a folder as one document, in Markdown, LaTeX or on a terminal. The same files give the same text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from masil.benchmark import RunRecord, read_run
from masil.errors import StorageError
from masil.report.facts import TABLES, TITLES
from masil.report.measured import checked, draws_of, name_of, title_of
from masil.report.provenance import again, provenance
from masil.report.render_latex import latex_table
from masil.report.render_markdown import code, escaped, markdown_table
from masil.report.table import Table
from masil.report.tables import ablation_table, balance_table, concept_table, session_table

HEADER = "<!-- Made by `masil report`; change the runs, not this file. -->"
SHARED = (
    "The methods of a measured group share one backbone, unless their runs say that they trained their own (below, "
    "recipe and weights). On a shared one, what a method's authors do to the weights is done to a linear map of "
    "activations that the base session's mean was taken off (ALICE, D-NegCosine, EEIL, FACT, iCaRL, LUCIR) or to what "
    "follows it (CEC, fixed classifier, Regularizer); D-Cosine, FeCAM, RanPAC and TEEN take activations as they are, "
    "as their authors do."
)


def read_results(place: Path) -> tuple[RunRecord, ...]:
    """Read one run (its file or its folder), or every run of a folder, in an order of their own."""
    if (place / "run.json").is_file():
        found = [place / "run.json"]
    elif place.is_dir():
        found = sorted([*place.glob("*.json"), *place.glob("*/run.json")])
        if not found:
            raise StorageError(f"There is no run in {place}; `masil run --out {place / 'NAME'}` puts one there.")
    elif place.is_file():
        found = [place]
    else:
        raise StorageError(f"There is no {place}; name a run.json, the folder of a run, or a folder of runs.")
    return checked([read_run(path) for path in found])


def result_name(record: RunRecord) -> str:
    """Name the file of a run among results: its protocol, what it was played on, and the method."""
    base = record.recipe.removesuffix(f"+{record.method}") if record.recipe else record.backbone
    setting = base if base.startswith(record.protocol) else f"{record.protocol}-{base}"
    own = "own" if record.recipe and record.recipe.endswith(f"+{record.method}") else ""
    given = "-".join(f"{name}={value}" for name, value in record.given.items())
    parts = [setting, "mirrored" if record.flip else "", draws_of(record), own, record.method, given]
    return "-".join(re.sub(r"[^A-Za-z0-9_.=]+", "-", part) for part in parts if part) + ".json"


def tables(records: Sequence[RunRecord], expected: Sequence[str] = ()) -> list[Table]:
    """Give every table of these runs; methods of `expected` without a run on a protocol are said to be "not run"."""
    by_protocol = [table for protocol in _protocols(records, expected) for table in _of(protocol, records, expected)]
    return [*by_protocol, ablation_table(records), concept_table(records)]


def results_markdown(records: Sequence[RunRecord], expected: Sequence[str] = ()) -> str:
    """Give the document of all runs: tables, then how each was measured."""
    return "\n".join(_markdown(checked(records), expected))


def results_latex(records: Sequence[RunRecord], expected: Sequence[str] = ()) -> str:
    """Give all tables of these runs, to be read in by a document that uses booktabs and graphicx."""
    return "\n".join(map(latex_table, tables(checked(records), expected)))


def _protocols(records: Sequence[RunRecord], expected: Sequence[str]) -> list[str]:
    """Give the protocols of these runs; where all methods are asked for, also those of the paper that were not run."""
    ran = {record.protocol for record in records}
    known = [name for name in TITLES if name in ran or (expected and name in TABLES)]
    return known + sorted(ran - set(known))


def _of(protocol: str, records: Sequence[RunRecord], expected: Sequence[str]) -> Iterator[Table]:
    yield session_table(protocol, records, expected)
    if any(record.protocol == protocol for record in records):
        yield balance_table(protocol, records)


def _markdown(records: Sequence[RunRecord], expected: Sequence[str]) -> Iterator[str]:
    yield HEADER
    yield "# Results"
    yield ""
    yield (
        "What masil measured, below what was published. The two never share a group: published rows come from the "
        "paper, with its backbones and training; measured rows from the runs listed at the end. Accuracies are in "
        "per cent."
    )
    yield ""
    if len({record.method for record in records}) > 1:
        yield SHARED
        yield ""
    for protocol in _protocols(records, expected):
        yield f"## {escaped(title_of(protocol))}"
        yield ""
        for first in [record for record in records if record.protocol == protocol][:1]:
            yield f"{first.way}-way {first.shot}-shot, {first.base_classes} base classes."
            yield ""
        yield from map(markdown_table, _of(protocol, records, expected))
    yield "## Ablation and concepts"
    yield ""
    yield markdown_table(ablation_table(records))
    yield markdown_table(concept_table(records))
    yield "## How it was measured"
    for record in records:
        yield ""
        what = f"{name_of(record.method)} on {title_of(record.protocol)}, {record.backbone}, {draws_of(record)}"
        yield f"### {escaped(what)}"
        yield ""
        for name, value in provenance(record):
            yield f"- {name}: {code(value) if name == 'command' else escaped(value)}"
        yield ""
        yield "```sh"
        yield again(record)
        yield "```"
    yield ""
