"""What the paper claims beside what was measured: a difference over draws of the shots, its interval, a verdict."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from masil.benchmark import RunRecord, figure
from masil.collapse import minimise_free_features
from masil.protocol import mean_and_interval
from masil.report.published import TABLES, published, published_ablation, published_concept_cosines

Runs = Mapping[str, RunRecord]  # of one protocol, by method
# What each row of the ablation adds to the one before, and the paper's names of the two rows.
STEPS = (
    ("a fixed simplex instead of a learnt classifier", ("nc-ce", "NC + CE"), ("learnable-ce", "Learnable + CE")),
    ("dot-regression instead of cross-entropy", ("nc-fscil", "NC + ETF loss"), ("nc-ce", "NC + CE")),
    ("vectors induced by concepts", ("cf-as-written", "NC + ETF loss + CF"), ("nc-fscil", "NC + ETF loss")),
    ("fine-tuning", ("masil-as-written", "MASIL"), ("cf-as-written", "NC + ETF loss + CF")),
)


@final
@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about a number that it says is above 0, or `never` above, with one value for each draw.

    Where there are no draws, `settled` is the verdict.
    """

    protocol: str | None
    text: str
    paper: str
    values: tuple[float, ...]
    form: str = "+.2f"
    never: bool = False
    settled: str = ""

    def here(self) -> str:
        """Give the mean over draws with half the width of its 95 % interval (Student's t): "+0.11 ± 0.20"."""
        if not self.values:
            return "not measured"
        total = mean_and_interval(self.values)
        mean = f"{total.mean:{self.form}}"
        if total.n > 1:
            mean += f" ± {total.high - total.mean:{self.form.lstrip('+')}}"
        return mean.replace("-", "−")

    def verdict(self) -> str:
        """Say whether the interval lies on the side that the paper claims."""
        if self.settled:
            return self.settled
        if len(self.values) < 2:
            return "cannot be said of one draw"
        total = mean_and_interval(self.values)
        if self.never:
            return "contradicted" if total.low > 0 else "confirmed"
        return "confirmed" if total.low > 0 else "contradicted" if total.high < 0 else "not confirmed"


def claims(records: Sequence[RunRecord]) -> list[Claim]:
    """Give every claim of the paper that these runs can be held against; draws are those named by a number."""
    found: list[Claim] = []
    for protocol in dict.fromkeys(record.protocol for record in records):
        runs = {record.method: only_draws(record) for record in records if record.protocol == protocol}
        found += [*_ahead(protocol, runs), *_steps(protocol, runs), *_cosines(protocol, runs)]
        found += [*_concepts(protocol, runs), *_collapse(protocol, runs)]
    return [*found, _frame()]


def only_draws(record: RunRecord) -> RunRecord:
    """Leave the standard shots out, of which there is one choice only."""
    kept = [place for place, draw in enumerate(record.draws) if draw.draw is not None]
    by_draw = record.extras.get("cosines_by_draw")
    extras = record.extras if by_draw is None else {**record.extras, "cosines_by_draw": [by_draw[at] for at in kept]}
    return replace(record, draws=tuple(record.draws[at] for at in kept), extras=extras)


FIGURES = {"the last session": "accuracy", "the average": "average"}  # in words, and as a draw calls them


def _differences(runs: Runs, better: str, worse: str) -> dict[str, tuple[float, ...]]:
    """Give the differences of two methods on the same draws, for the last session and the average."""
    ours, theirs = ({draw.draw: draw for draw in runs[name].draws} for name in (better, worse))
    found = {}
    for words, name in FIGURES.items():
        pairs = [(figure(ours[draw], name), figure(theirs[draw], name)) for draw in ours if draw in theirs]
        found[words] = tuple(our - their for our, their in pairs if our is not None and their is not None)
    return found


def _ahead(protocol: str, runs: Runs) -> Iterator[Claim]:
    if not {"masil-as-written", "nc-fscil"} <= set(runs):
        return
    rows = {row.method: row for row in published(protocol)}
    for name, values in _differences(runs, "masil-as-written", "nc-fscil").items():
        said = "no figure"
        if rows:
            pair = (rows["MASIL"], rows["NC-FSCIL"])
            last = name == "the last session"
            said = _signed(pair[0].last - pair[1].last if last else pair[0].average - pair[1].average)
        yield Claim(protocol, f"MASIL is ahead of NC-FSCIL in {name}", said, values)


def _steps(protocol: str, runs: Runs) -> Iterator[Claim]:
    for text, (better, row), (worse, below) in STEPS:
        if better in runs and worse in runs:
            for name, values in _differences(runs, better, worse).items():
                said = "no figure"
                if protocol in TABLES:
                    place = list(FIGURES).index(name)
                    printed = published_ablation()
                    said = _signed(printed[row][protocol][place] - printed[below][protocol][place])
                yield Claim(protocol, f"{text}: raises {name}", said, values)


def _cosines(protocol: str, runs: Runs) -> Iterator[Claim]:
    """Hold the analysis of class vectors against Avg_{k≠k'} h_k·w_k' by session."""
    for split in ("train", "test"):
        others = {method: lines for method, run in runs.items() if (lines := _by_session(run, split))}
        rises = {method: tuple(line[-1] - line[0] for line in lines) for method, lines in others.items()}
        where = f"similarity between different classes, {split} images"
        if "learnable-ce" in rises:
            text = f"{where}: rises with Learnable + CE"
            yield Claim(protocol, text, "a figure", rises["learnable-ce"], form="+.4f")
        if "nc-fscil" in rises:
            text = f"{where}: does not rise with NC + ETF loss"
            yield Claim(protocol, text, "a figure", rises["nc-fscil"], form="+.4f", never=True)
        if {"nc-fscil", "masil-as-written"} <= set(rises):
            pairs = zip(others["nc-fscil"], others["masil-as-written"], strict=True)
            lower = tuple(theirs[-1] - ours[-1] for theirs, ours in pairs)
            yield Claim(protocol, f"{where}: lower with MASIL at the end", "a figure", lower, form="+.4f")


def _by_session(run: RunRecord, split: str) -> list[list[float]]:
    """Give the cosines to the vectors of other classes, by draw and session."""
    return [[pair[1] for pair in cosines[split]] for cosines in run.extras.get("cosines_by_draw", ()) if cosines]


def _concepts(protocol: str, runs: Runs) -> Iterator[Claim]:
    if "masil-as-written" not in runs or not (cosine := runs["masil-as-written"].extras.get("concept_cosine")):
        return
    v = runs["masil-as-written"].extras["bank"]["concepts"]
    said = published_concept_cosines().get(protocol)
    yield Claim(
        protocol,
        "concepts do not overlap: their mean cosine is about 0",
        "no figure" if said is None else f"{said:.2e}".replace("-", "−"),
        (cosine["plain"],),
        form=".3f",
        settled=(
            f"contradicted: concepts are >= 0, so no mean is below 0; centred it is {cosine['centred']:.2e}, where any "
            f"{v} of equal length have {-1 / (v - 1):.2e}"
        ).replace("-", "−"),
    )


def _collapse(protocol: str, runs: Runs) -> Iterator[Claim]:
    """Say whether the base session of dot-regression collapses: NC1 from its first to its last epoch."""
    run = runs.get("nc-fscil", runs.get("masil-as-written"))
    rows = [row["nc1"] for row in run.extras.get("history", ()) if "nc1" in row] if run else []
    if len(rows) > 1:
        yield Claim(
            protocol,
            "features collapse in the base session: NC1 falls",
            "assumed",
            (),
            settled=f"{'confirmed' if rows[-1] < rows[0] else 'contradicted'}: from {rows[0]:.3g} to {rows[-1]:.3g}",
        )


def _frame() -> Claim:
    """Solve Eq. obj for classes of unequal size and look at the frame that comes out."""
    counts = (40, 20, 8, 3)
    cosine = minimise_free_features(counts, 6).largest_cosine()
    return Claim(
        None,
        f"Eq. obj on classes of {', '.join(map(str, counts))} images ends in a simplex",
        f"−{1 / (len(counts) - 1):.2f}",
        (cosine,),
        form=".2f",
        settled="contradicted: the frame is orthogonal, as the paper's own W Wᵀ = diag says"
        if cosine < 0.01
        else "not confirmed",
    )


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
