"""All runs of a folder as one document, in Markdown, LaTeX or on a terminal; and the page of all methods.

The same files give the same text.
"""

import os
import re
import shlex
import unicodedata
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from masil.benchmark import RunRecord, read_run
from masil.errors import StorageError
from masil.methods import METHODS
from masil.report.leaderboard import Link, kept, leaderboards
from masil.report.measured import OURS, checked, name_of, setting_name, setting_of, slug, title_of
from masil.report.order import order_table
from masil.report.render import escaped, latex_table, markdown_table
from masil.report.reproduction import page_of, replications
from masil.report.table import Table
from masil.report.tables import balance_table, comparison_tables, session_table
from masil.report.traced import again

HEADER = "<!-- Made by `masil report`; change the runs, not this file. -->"
INTRO = (
    "One leaderboard a data set: what masil measured and, in columns of their own, what was published, with other "
    "backbones and training. Accuracies are in per cent. The methods of a leaderboard share one backbone, unless a row "
    "says that its base session is the method's own; [methods.md](methods.md) says how each method differs from "
    "its authors'. What is folded has the other settings, every session, and the command behind every row."
)


def read_results(place: Path) -> tuple[RunRecord, ...]:
    """Read one run (its file or its folder), or every run of a folder, in an order of their own."""
    if (place / "run.json").is_file():
        files = [place / "run.json"]
    elif place.is_dir():
        files = sorted([*place.glob("*.json"), *place.glob("*/run.json")])
        if not files:
            command = shlex.join(["masil", "run", "characters", "--out", str(place / "characters")])
            raise StorageError(f"There is no run in {place}; `{command}` puts one there.")
    elif place.is_file():
        files = [place]
    else:
        raise StorageError(f"There is no {place}; name a run.json, the folder of a run, or a folder of runs.")
    return checked([read_run(file) for file in files])


def result_name(record: RunRecord) -> str:
    """Name the file of a run among results: its protocol, what it was played on, and the method."""
    own = "own" if "+" in (record.recipe or "") else ""
    given = "-".join(f"{name}={value}" for name, value in record.given.items())
    parts = [setting_name(record), own, record.method, given]
    return "-".join(slug(part, "_.=-") for part in parts if part) + ".json"


def tables(records: Sequence[RunRecord], ours: str = OURS) -> list[Table]:
    """Give every table of these runs."""
    by_protocol = [table for runs in _by_protocol(records).values() for _, table in _tables(runs, ours)]
    return [*by_protocol, *comparison_tables(records)]


def _by_protocol(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    protocols: dict[str, list[RunRecord]] = {}
    for record in records:
        protocols.setdefault(record.protocol, []).append(record)
    return protocols


def _tables(runs: Sequence[RunRecord], ours: str, link: Link | None = None) -> Iterator[tuple[str, Table]]:
    """Yield the tables of a protocol's runs, each under the title that it has where it is folded."""
    protocol = runs[0].protocol
    for board in leaderboards(protocol, runs, ours, link):
        yield f"All methods on {board.groups[0].title}", board
    yield "Accuracy by session, published and measured", session_table(protocol, runs, ours)
    yield "Base and novel classes, performance drop, cost", balance_table(protocol, runs)
    if (order := order_table(protocol, runs)) is not None:
        yield "The order of methods against the published order", order


def results_latex(records: Sequence[RunRecord], ours: str = OURS) -> str:
    """Give all tables of these runs, to be read in by a document that uses booktabs and graphicx."""
    return "\n".join(map(latex_table, tables(checked(records), ours)))


def results_markdown(records: Sequence[RunRecord], ours: str = OURS, folder: Path | None = None) -> str:
    """Give the page of all runs; `folder` is where it will stand, for links to the runs' files."""
    return "\n".join(_markdown(checked(records), ours, Path() if folder is None else folder))


def _markdown(records: Sequence[RunRecord], ours: str, folder: Path) -> Iterator[str]:
    def link(record: RunRecord) -> str:
        file = record.source or Path(result_name(record))
        return Path(os.path.relpath(file, folder)).as_posix()

    pipeline = {page_of(budget): [run for run in runs if run.method != OURS] for budget, runs in replications(records)}
    there = {id(run) for runs in pipeline.values() for run in runs}
    here = [run for run in records if id(run) not in there] or records
    yield f"{HEADER}\n# Results\n\n{INTRO}\n"
    if len(here) < len(records):
        pages = ", ".join(f"[{page}]({page})" for page in pipeline)
        yield f"What the paper's own pipeline reaches, with its ablation and claims, has pages of its own: {pages}.\n"
    for protocol, runs in _by_protocol(here).items():
        sessions = len(runs[0].draws[0].sessions) - 1
        yield f"## {escaped(title_of(protocol))}\n"
        novel = f"{sessions} sessions of {runs[0].way} classes with {runs[0].shot} images each"
        yield f"{runs[0].base_classes} base classes, then {novel}.\n"
        (_, first), *others = _tables(runs, ours, link)
        yield markdown_table(first)
        for title, table in others:
            yield _folded(title, markdown_table(table))
        yield _folded("The command and commit behind every row", _commands(runs, link))
    if comparisons := comparison_tables(here):
        yield "## Ablation and concepts\n"
        for table in comparisons:
            yield _folded(table.title, markdown_table(table))


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n\n{text}\n</details>\n"


def _commands(records: Sequence[RunRecord], link: Link) -> str:
    """Give every command once, with the commit it was run at, and the rows that came of it, linked to their files."""
    rows: dict[str, list[str]] = {}
    for record in records:
        row = f"[{escaped(name_of(record.method))}]({link(record)})"
        rows.setdefault(f"{again(record, elsewhere=True)}\n# {setting_of(record)}", []).append(row)
    return "\n".join(f"```sh\n{command}\n```\n\n{', '.join(names)}\n" for command, names in sorted(rows.items()))


METHODS_HEADER = "<!-- Made by `masil report`; change the methods' own files, not this one. -->"
METHODS_INTRO = (
    "Every method that `masil run --method` and `masil bench` play. *Trains* is what a session trains after the base "
    "session, *keeps* what of the past is kept between sessions. All are written anew for this package; the last "
    "column says how one differs from what its authors describe, where its file says so."
)
CITATION = re.compile(r"(?P<first>[^,]+?)(?P<others> et al\.)?, (?P<title>.+?),(?: (?P<venue>[^,]+))? (?P<year>\d{4})")
CONFERENCES = ("AAAI", "BMVC", "CVPR", "ECCV", "ICCV", "ICLR", "ICML", "ICPR", "IJCAI", "NeurIPS", "WACV")


def methods_markdown() -> str:
    """Give the page of the package's own methods; the same classes give the same text."""
    methods = [method for method in METHODS.values() if method.__module__.startswith("masil.")]
    lines = [["method", "name", "trains", "keeps", "cited as", "how it differs from its authors' version"], ["---"] * 6]
    keys: dict[str, str] = {}  # by citation
    for method in sorted(methods, key=lambda method: method.title.lower()):
        if method.citation not in keys:
            keys[method.citation] = _key(method.citation, set(keys.values()))
        label = [escaped(method.title), f"`{method.name}`", method.trains, kept(method)]
        lines.append([*label, f"[{keys[method.citation]}](#citations)", escaped(method.differs)])
    cited = sorted((key, citation) for citation, key in keys.items())
    parts = [
        f"{METHODS_HEADER}\n# Methods\n\n{METHODS_INTRO}\n",
        *(f"| {' | '.join(line)} |" for line in lines),
        "\n## Citations\n",
        *(f"- **{key}**: {escaped(citation)}." for key, citation in cited),
        "\n<details><summary>As BibTeX, with as much as the citations above say</summary>\n\n```bibtex",
        *filter(None, (_bibtex(key, citation) for key, citation in cited)),
        "```\n\n</details>\n",
    ]
    return "\n".join(parts)


def _key(citation: str, taken: set[str]) -> str:
    """Give a short name for a citation, such as "vinyals2016"; a second of the same author and year gets a letter."""
    match = CITATION.fullmatch(citation)
    name = match["first"].split()[-1] + match["year"] if match else "".join(citation.split()[:2])
    plain = unicodedata.normalize("NFKD", name.lower()).encode("ascii", "ignore").decode()
    return next(key for key in (plain, *(f"{plain}{letter}" for letter in "bcdefgh")) if key not in taken)


def _bibtex(key: str, citation: str) -> str:
    """Give what a citation says as BibTeX; nothing where it is of another form."""
    match = CITATION.fullmatch(citation)
    if match is None:
        return ""
    venue = match["venue"] or ""
    conference = venue in CONFERENCES
    fields = {
        "author": match["first"] + (" and others" if match["others"] else ""),
        "title": f"{{{match['title']}}}",
        **({"booktitle" if conference else "note": venue} if venue else {}),
        "year": match["year"],
    }
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@{'inproceedings' if conference else 'misc'}{{{key},\n{lines}}}\n"
