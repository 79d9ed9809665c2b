"""What the paper claims beside what was measured: a difference over draws of the shots, its interval, a verdict."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

from masil.benchmark import RunRecord, paired_differences
from masil.collapse import minimise_free_features
from masil.protocol import mean_and_interval
from masil.report.measured import with_shots
from masil.report.published import TABLES, published, published_ablation, published_concept_cosines
from masil.report.tables import ABLATION

Runs = Mapping[str, RunRecord]  # of one protocol, by method
# What each row of the paper's ablation adds to the one before.
STEPS = (
    "a fixed simplex instead of a learnt classifier",
    "dot-regression instead of cross-entropy",
    "vectors induced by concepts",
    "fine-tuning",
)
FIGURES = {"the last session": "accuracy", "the average": "average"}  # in words, and as a draw calls them

# In the last session, as the text says; its table of CIFAR-100 has +3.13.
AHEAD_OF_ALICE = {"miniimagenet": 3.16, "cifar100": 2.05, "cub200": 0.14}


@final
@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about a number that it says is above 0, or `never` above it, with a value for each draw.

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
        if self.never:  # an interval that holds 0 does not show that nothing rises
            return "contradicted" if total.low > 0 else "confirmed" if total.high <= 0 else "not confirmed"
        return "confirmed" if total.low > 0 else "contradicted" if total.high < 0 else "not confirmed"


def claims(records: Sequence[RunRecord]) -> list[Claim]:
    """Give every claim of the paper that these runs can be held against; draws are those named by a number."""
    every: list[Claim] = []
    for protocol in dict.fromkeys(record.protocol for record in records):
        runs: dict[str, RunRecord] = {}
        for record in records:
            drawn = with_shots(record, standard=False)
            if record.protocol == protocol and (drawn.draws or record.method not in runs):
                runs[record.method] = drawn
        for held in (_ahead, _ahead_of_strongest, _steps, _cosines, _concepts, _collapse):
            every += held(protocol, runs)
    return [*every, _frame()]


def _ahead(protocol: str, runs: Runs) -> Iterator[Claim]:
    printed = {row.method: (row.last, row.average) for row in published(protocol)}
    pairs = zip(printed["MASIL"], printed["NC-FSCIL"], strict=True) if printed else ()
    text, methods = "MASIL is ahead of NC-FSCIL in {}", ("masil-as-written", "nc-fscil")
    yield from _differences(Claim(protocol, text, "no figure", ()), runs, methods, pairs)


def _ahead_of_strongest(protocol: str, runs: Runs) -> Iterator[Claim]:
    """Hold the benchmark evaluation against ALICE, which the paper calls the strongest baseline."""
    if protocol not in AHEAD_OF_ALICE:
        return
    ours, theirs = (runs.get(method) for method in ("masil-as-written", "alice"))
    leads: list[tuple[float, ...]] = []  # by session
    average: tuple[float, ...] = ()
    if ours is not None and theirs is not None:
        count = len(ours.draws[0].sessions) if ours.draws else 0
        leads = [paired_differences(ours, theirs, "accuracy", session) for session in range(count)]
        average = paired_differences(ours, theirs, "average")
    settled = "" if average else "not played here"
    text = "MASIL is ahead of ALICE, the strongest baseline, in {}"
    for words, paper, values in (
        ("the last session", f"+{AHEAD_OF_ALICE[protocol]:.2f}", leads[-1] if leads else ()),
        ("every session (where it leads least)", "every lead > 0", min(leads, key=sum, default=())),
        ("the average", "at least +1.79", average),
    ):
        yield Claim(protocol, text.format(words), paper, values, settled=settled)


def _steps(protocol: str, runs: Runs) -> Iterator[Claim]:
    models = zip(ABLATION.values(), published_ablation().values(), strict=False)  # this package's is not the paper's
    for text, ((worse, below), (better, above)) in zip(STEPS, pairwise(models), strict=True):
        pairs = zip(above[protocol], below[protocol], strict=True) if protocol in TABLES else ()
        yield from _differences(Claim(protocol, f"{text}: raises {{}}", "no figure", ()), runs, (better, worse), pairs)


def _differences(
    claim: Claim, runs: Runs, methods: tuple[str, str], printed: Iterable[tuple[float, float]]
) -> Iterator[Claim]:
    """Yield for each of the `FIGURES` the claim that the first method is ahead of the second on the same draws."""
    if not all(method in runs for method in methods):
        return
    ours, theirs = (runs[method] for method in methods)
    said = [f"{our - their:+.2f}".replace("-", "−") for our, their in printed] or [claim.paper] * len(FIGURES)
    for (words, name), paper in zip(FIGURES.items(), said, strict=True):
        yield replace(claim, text=claim.text.format(words), paper=paper, values=paired_differences(ours, theirs, name))


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
            yield Claim(protocol, f"{where}: how much lower it ends with MASIL", "a figure", lower, form="+.4f")


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
