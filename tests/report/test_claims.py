"""Claims of the paper against made-up runs: the verdict follows from the interval over draws."""

import re
from dataclasses import replace

import pytest

from masil.benchmark import BUDGETS, write_run
from masil.report import (
    Claim,
    by_shots,
    claims,
    read_results,
    replication_pages,
    replication_pictures,
    reproduction_page,
    result_name,
    results_markdown,
    write_pictures,
)


@pytest.mark.parametrize(
    ("values", "never", "here", "verdict"),
    [
        ((1.0, 1.2, 0.8, 1.1, 0.9), False, "+1.00 ± 0.20", "confirmed"),
        ((-1.0, -1.2, -0.8, -1.1, -0.9), False, "−1.00 ± 0.20", "contradicted"),
        ((0.3, -0.3, 0.5, 0.1, -0.05), False, "+0.11 ± 0.38", "not confirmed"),
        ((0.3, -0.3, 0.5, 0.1, -0.05), True, "+0.11 ± 0.38", "not confirmed"),
        ((-0.3, 0.3, -0.5, -0.1, 0.05), True, "−0.11 ± 0.38", "not confirmed"),
        ((-1.0, -1.2, -0.8, -1.1, -0.9), True, "−1.00 ± 0.20", "confirmed"),
        ((0.0, 0.0, 0.0), True, "+0.00 ± 0.00", "confirmed"),
        ((1.0, 1.2, 0.8, 1.1, 0.9), True, "+1.00 ± 0.20", "contradicted"),
        ((1.0,), False, "+1.00", "cannot be said of one draw"),
        ((), False, "not measured", "cannot be said of one draw"),
    ],
)
def test_a_verdict_follows_from_the_interval(values, never, here, verdict):
    """± is t(4) = 2.776 standard errors of five draws."""
    claim = Claim("cifar100", "something rises", "+0.52", values, never=never)
    assert (claim.here(), claim.verdict()) == (here, verdict)


def rows(record, **lasts):
    """Runs on the standard shots, which claims pass over, and on three draws around a last accuracy."""
    found = []
    for method, last in lasts.items():
        cosines = [{"train": [[0.9, 0.1], [0.8, 0.2]], "test": [[0.9, 0.1], [0.8, 0.1 + at / 100]]} for at in range(4)]
        run = record(method.replace("_", "-"), (last + 30, last - 0.5, last, last + 0.5))
        draws = tuple(replace(draw, draw=None if at == 0 else at - 1) for at, draw in enumerate(run.draws))
        extras = {
            "cosines_by_draw": cosines,
            "cosines": cosines[0],
            "history": [{"nc1": 2.0, "seconds": 30.0}, {"nc1": 0.5, "seconds": 30.0}],
            "concept_cosine": {"plain": 0.17, "centred": -0.0159},
            "bank": {"concepts": 64},
        }
        whole = replace(run, draws=draws, asked=(None, 0, 1, 2), extras=extras)
        found.append(replace(whole, recipe=f"cifar100-paper-quick+{run.method}"))
    return found


LASTS = {"learnable_ce": 50, "nc_ce": 51, "nc_fscil": 53, "cf_as_written": 52, "masil_as_written": 52, "masil": 57}


def test_the_papers_steps_are_held_against_differences_on_the_same_draws(record):
    found = {claim.text: claim for claim in claims(rows(record, **LASTS))}

    def of(text):
        claim = found[text]
        return claim.paper, claim.here(), claim.verdict()

    assert of("MASIL is ahead of NC-FSCIL in the last session") == ("+1.12", "−1.00 ± 0.00", "contradicted")
    raises = "raises the last session"
    assert of(f"a fixed simplex instead of a learnt classifier: {raises}") == ("+2.29", "+1.00 ± 0.00", "confirmed")
    assert of(f"dot-regression instead of cross-entropy: {raises}") == ("+1.69", "+2.00 ± 0.00", "confirmed")
    assert of(f"vectors induced by concepts: {raises}") == ("+0.02", "−1.00 ± 0.00", "contradicted")
    assert of(f"fine-tuning: {raises}") == ("+1.10", "+0.00 ± 0.00", "not confirmed")
    similar = "similarity between different classes, test images"
    assert of(f"{similar}: rises with Learnable + CE")[1:] == ("+0.0200 ± 0.0248", "not confirmed")
    assert of(f"{similar}: does not rise with NC + ETF loss")[1:] == ("+0.0200 ± 0.0248", "not confirmed")
    assert of(f"{similar.replace('test', 'train')}: does not rise with NC + ETF loss")[2] == "contradicted"
    assert of("features collapse in the base session: NC1 falls")[2] == "confirmed: from 2 to 0.5"
    concepts = of("concepts do not overlap: their mean cosine is about 0")
    assert concepts[:2] == ("−8.78e−03", "0.170")
    assert "any 64 of equal length have −1.59e−02" in concepts[2]
    assert "the frame is orthogonal" in of("Eq. obj on classes of 40, 20, 8, 3 images ends in a simplex")[2]


def test_the_lead_over_the_strongest_baseline_is_claimed_of_every_session_of_the_papers_data_sets(record):
    def found(runs):
        every = [claim for claim in claims(runs) if "ALICE" in claim.text]
        return [(claim.text.rpartition(" in ")[2], claim.paper, claim.here(), claim.verdict()) for claim in every]

    absent = ("not measured", "not played here")
    assert found(rows(record, **LASTS)) == [
        ("the last session", "+2.05", *absent),
        ("every session (where it leads least)", "every lead > 0", *absent),
        ("the average", "at least +1.79", *absent),
    ]
    (masil,) = rows(record, masil_as_written=56)
    (alice,) = rows(record, alice=50)
    assert [line[2:] for line in found([masil, alice])] == [
        ("+6.00 ± 0.00", "confirmed"), ("+0.00 ± 0.00", "not confirmed"), ("+3.00 ± 0.00", "confirmed")
    ]  # fmt: skip
    elsewhere = [replace(run, protocol="characters") for run in (masil, alice)]  # which the paper does not have
    assert found(elsewhere) == []


def test_the_page_has_every_part_that_was_asked_for_and_says_its_budget(record):
    runs = rows(record, **LASTS)
    page = reproduction_page(runs, ["table2", "ablation", "figure", "concepts"], BUDGETS["quick"])
    for heading in ("The paper's claims", "CIFAR-100", "Ablation", "Concepts", "Base sessions", "How it was measured"):
        assert f"## {heading}" in page
    assert "Budget `quick`: a few minutes" in page
    for said in (
        "measured by masil, draws, budget quick",
        "measured by masil, budget quick",
        "CIFAR-100, budget quick]",
    ):
        assert said in page
    assert "measured by masil, standard shots" in page
    assert "| MASIL (as the paper writes it) |" in page
    assert "not run" not in page
    assert "missing" not in page  # the draws are no part of the standard shots, nor these of those
    line = next(row for row in page.splitlines() if row.startswith("| MASIL (this package)") and "±" in row)
    assert "57.00 ± 0.50" in line  # the standard shots are not among the draws
    assert "cifar100-cosines.svg" in page
    assert "cifar100-paper-quick+nc-fscil" in page
    assert "## Concepts" not in reproduction_page(runs, ["table2"], BUDGETS["leg"])


def test_a_page_takes_in_rows_and_data_sets_as_they_are_kept(record, tmp_path):
    """Base sessions of one budget may be trained on different machines: a record is all that a row needs."""
    shared = dict.fromkeys(("cf-as-written", "masil-as-written"), "nc-fscil")

    def keep(protocol, methods):
        for run in rows(record, **methods):
            base = f"{protocol}-paper-leg+{shared.get(run.method, run.method)}"
            for part in by_shots([replace(run, protocol=protocol, recipe=base, views=1)]):
                write_run(part, tmp_path / result_name(part))
        return replication_pages(read_results(tmp_path))["what-replicates-leg.md"]

    def line(page, dataset, text):
        (found,) = [
            row for row in page.splitlines() if row.startswith(f"| {dataset} | {text}: raises the last session")
        ]
        return [cell.strip() for cell in found.split("|")[3:-1]]

    induced, frame, regression = "vectors induced by concepts", "a fixed simplex instead", "dot-regression instead"
    first = keep("cifar100", {"nc_fscil": 53, "cf_as_written": 52, "masil_as_written": 52})
    assert induced in first
    assert frame not in first
    second = keep("cifar100", {"learnable_ce": 50})
    assert re.search(r"\| Learnable \+ CE +\| +\**50\.00 ± 0\.50", second)
    assert frame not in second
    third = keep("cifar100", {"nc_ce": 51})
    assert line(third, "CIFAR-100", f"{frame} of a learnt classifier") == ["+2.29", "+1.00 ± 0.00", "confirmed"]
    assert line(third, "CIFAR-100", f"{regression} of cross-entropy") == ["+1.69", "+2.00 ± 0.00", "confirmed"]
    birds = keep("cub200", {"nc_fscil": 40, "cf_as_written": 41})
    assert line(birds, "CUB-200", induced) == ["+0.28", "+1.00 ± 0.00", "confirmed"]
    for page in (first, second, third, birds):
        assert line(page, "CIFAR-100", induced) == ["+0.02", "−1.00 ± 0.00", "contradicted"]
        assert "budget leg" in page


def test_kept_runs_make_a_page_for_each_budget_that_was_played(record, tmp_path):
    bases = {"masil": "cifar100-short", **dict.fromkeys(("cf-as-written", "masil-as-written"), "nc-fscil")}
    runs = [
        replace(run, recipe=base if base == "cifar100-short" else f"cifar100-paper-quick+{base}", views=1)
        for run in rows(record, **LASTS)
        for base in [bases.get(run.method, run.method)]
    ]
    elsewhere = replace(runs[0], recipe="cifar100-fast")
    pages = replication_pages([*runs, elsewhere])
    assert list(pages) == ["what-replicates-quick.md"]
    assert pages["what-replicates-quick.md"] == replication_pages(runs)["what-replicates-quick.md"]
    assert replication_pages(list(by_shots(runs))) == replication_pages(runs)  # as they are kept
    (picture,) = re.findall(r"!\[.*\]\((.*)\)", pages["what-replicates-quick.md"])
    write_pictures(replication_pictures(runs), tmp_path)
    assert [file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*.*")] == [picture]
    assert b"<svg" in (tmp_path / picture).read_bytes()
    assert "| MASIL (this package) |" in pages["what-replicates-quick.md"]
    results = results_markdown([*runs, elsewhere])  # leaves to that page what is on it, and this package's where it was
    assert "[what-replicates-quick.md](what-replicates-quick.md)" in results
    assert "NC-FSCIL (own base session)" not in results
    assert "trained by cifar100-fast" in results
    assert "trained by cifar100-short" in results
    assert replication_pages([runs[-1], elsewhere]) == {}  # nothing of the paper's pipeline
