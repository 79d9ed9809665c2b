"""`masil report` on runs made up in memory."""

import json
import re
from dataclasses import asdict, replace
from functools import partial

import pytest

from masil.benchmark import DrawRecord, RunRecord, SessionRow, Stamp, parameters_now, read_run, write_run
from masil.errors import InputError, StorageError, UnknownNameError


@pytest.fixture
def report(masil):
    return partial(masil, "report")


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr("masil.report.traced.has_commit", lambda name: name != "gone")  # in a checkout or not
    rows = (SessionRow(0, 32, 90.0, 90.0, None, None, 1.0, 0.1), SessionRow(1, 37, 85.0, 88.0, 60.0, 71.4, 0.1, 0.1))
    stamp = Stamp("1a1d552", True, "masil run", {"masil": "0.1.0"}, {"cores": 2}, "2026-01-02T03:04:05", 3.0, 4, 5)
    record = RunRecord(
        method="masil", protocol="characters", dataset="characters", way=5, shot=5, base_classes=32,
        backbone="efficientnet_lite0", weights="imagenet", recipe=None, parameters={}, given={},
        draws=(DrawRecord(None, rows, 87.5, 5.0, 70.0, stamp),), seed=0, weights_checksum="0b", data_checksum="0a",
        code="0c", asked=(None,),
    )  # fmt: skip
    record = replace(record, parameters=parameters_now(record))
    write_run(record, tmp_path / "results" / "a.json")
    return tmp_path / "results"


def change(results, **changes):
    record = read_run(results / "a.json")
    stamps = {name: changes.pop(name) for name in ("clean", "commit", "own_commit") if name in changes}
    draws = tuple(replace(draw, stamp=replace(draw.stamp, **stamps)) for draw in record.draws)
    write_run(replace(record, draws=draws, **changes), results / "a.json")


def test_the_terminal_is_the_default(report, results):
    done = report(results)
    assert done.exit_code == 0, done.output
    assert "Characters: accuracy by session" in done.output
    assert "85.00" in done.output


@pytest.mark.parametrize("terminal", [False, True])
def test_no_cell_is_cut_however_narrow_the_terminal_is(report, results, monkeypatch, terminal):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("rich.console.Console.is_terminal", terminal)
    said = report(results).output
    assert "…" not in said
    for word in ("relative", "improvement", "performance", "learning,", "85.00", "71.40"):
        assert word in said
    assert terminal or "relative improvement" in said  # piped, a heading is one line


@pytest.mark.parametrize(
    ("form", "piece"), [("markdown", "## Characters"), ("latex", r"\begin{tabular}"), ("terminal", "measured by masil")]
)
def test_a_format_can_be_asked_for(report, results, form, piece):
    assert piece in report(results, "--format", form).output


def test_the_document_is_written_and_checked(report, results, tmp_path):
    file = tmp_path / "results.md"
    missing = report(results, "--check", file)
    assert missing.exit_code == 1
    assert "makes it" in missing.output
    assert report(results, "-o", file).exit_code == 0
    current = report(results, "--check", file)
    said = f"{file} is current.\n{tmp_path / 'methods.md'} is current.\n"  # the page links to that of methods
    assert (current.exit_code, current.output) == (0, said)
    file.write_text(file.read_text(encoding="utf-8").replace("85.00", "95.00"), encoding="utf-8")
    stale = report(results, "--check", file)
    assert stale.exit_code == 1
    assert f"is not what the runs say now; `masil report {results} -o {file}` brings it up to date." in stale.output


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clean": False}, "was played with code that is in no commit"),
        ({"clean": None, "commit": None}, "was played with code that is in no commit"),
        ({"commit": "gone"}, "names commit gone, which this repository does not have; play the run again"),
        ({"method": "SimpleShot"}, "was played by code of somebody's own that is in no commit"),
        ({"own_code": "0d"}, "was played by code of somebody's own that is in no commit"),
        ({"code": ""}, "is of an older masil, which noted neither parameters nor code"),
        ({"asked": (None, 0, 1)}, "is incomplete: 2 of 3 draws are missing"),
        ({"parameters": {"concepts": 3}}, "is older than its parameters: .*concepts was 3 and is 64"),
        ({"method": "teen+balance", "parameters": {"a": 3.0}}, r"older than its parameters: a was 3\.0 and is 0\.5"),
    ],
)
def test_what_cannot_be_believed_is_refused_unless_it_says_so(report, results, tmp_path, changes, sentence):
    file = tmp_path / "results.md"
    assert report(results, "--keep", tmp_path / "kept").output == f"Kept in {tmp_path / 'kept'}: 1 run.\n"
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name == "characters-efficientnet_lite0-standard-shots-masil.json"
    assert read_run(kept) == read_run(results / "a.json")
    change(results, **changes)
    report(results, "-o", file)
    for refused in (report(results, "--check", file), report(results, "--keep", tmp_path / "more")):
        assert refused.exit_code == 1
        assert re.search(sentence, refused.output)
    assert not (tmp_path / "more").exists()
    change(results, waiting="its backbone will be trained again")
    report(results, "-o", file)
    assert "its backbone will be trained again" in file.read_text(encoding="utf-8")
    assert report(results, "--check", file).exit_code == 0
    assert report(results, "--keep", tmp_path / "more").exit_code == 1  # shown, but no result
    assert not (tmp_path / "more").exists()


def test_a_method_of_one_s_own_is_kept_if_its_commit_is_known(report, results, tmp_path):
    change(results, method="SimpleShot", own_code="0d", own_commit="0e")
    assert report(results, "--keep", tmp_path / "kept").exit_code == 0
    assert read_run(next((tmp_path / "kept").iterdir())).own_code == "0d"


@pytest.mark.parametrize(
    ("stamp", "sentence"), [({"commit": "gone"}, "names commit gone"), ({"clean": False}, "code that is in no commit")]
)
def test_a_ladder_beside_the_runs_is_refused_as_they_are(report, results, tmp_path, stamp, sentence):
    page, file = tmp_path / "results.md", results / "ladder" / "one.json"
    file.parent.mkdir()
    report(results, "-o", page)

    def check(**record):
        file.write_text(json.dumps(record))
        return report(results, "--check", page)

    traced = asdict(read_run(results / "a.json").draws[0].stamp)
    assert check(stamp=traced).exit_code == 0
    refused = check(stamp=traced | stamp)
    assert refused.exit_code == 1
    assert f"The ladder {file} " in refused.output.replace("\n", " ")
    assert sentence in refused.output
    assert check(stamp=traced | stamp, waiting="to be played again").exit_code == 0


def test_standard_shots_and_draws_are_kept_as_results_of_their_own(report, results, tmp_path):
    record = read_run(results / "a.json")
    (standard,) = record.draws
    draws = (standard, *(replace(standard, draw=number) for number in range(2)))
    write_run(replace(record, draws=draws, asked=(None, 0, 1)), results / "a.json")
    assert report(results, "--keep", tmp_path / "kept").output.endswith(": 2 runs.\n")
    kept = {file.name: read_run(file) for file in (tmp_path / "kept").iterdir()}
    stem = "characters-efficientnet_lite0"
    assert set(kept) == {f"{stem}-2-draws-masil.json", f"{stem}-standard-shots-masil.json"}
    assert all(run.missing == () for run in kept.values())


def test_the_page_goes_beside_the_run_or_where_it_is_told(report, results, tmp_path):
    assert report(results / "a.json", "--format", "html").exit_code == 0
    assert (results / "report.html").is_file()
    assert report(results, "-o", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not (tmp_path / "report.html").exists()


def test_figures_on_demand(report, results, tmp_path):
    assert report(results, "--figures", tmp_path / "f").exit_code == 0
    assert {file.suffix for file in (tmp_path / "f").iterdir()} == {".svg", ".pdf", ".png"}


def test_a_report_can_be_of_some_settings_and_methods_with_another_in_the_lead(report, results):
    record = read_run(results / "a.json")
    write_run(replace(record, method="teen"), results / "b.json")
    write_run(replace(record, method="fecam", views=2), results / "c.json")
    markdown = ("--format", "markdown")
    assert "MASIL (this package) ahead" in report(results, *markdown).output
    assert "TEEN ahead" in report(results, *markdown, "--ours", "teen").output
    some = report(results, *markdown, "--methods", "teen,fecam", "--only", "mirrored").output
    assert "| FeCAM " in some
    assert not re.search(r"\| (TEEN|MASIL .*|iCaRL) \||miniImageNet", some)
    for options in (["--ours", "cec"], ["--methods", "cec"], ["--only", "mirored"]):
        with pytest.raises((InputError, UnknownNameError)):
            report(results, *options)


def test_an_ending_that_says_nothing_is_refused_unless_a_format_is_asked_for(report, results, tmp_path):
    with pytest.raises(InputError, match=r"x\.pdf ends in none of \.txt, \.md, \.tex, \.html; rename it, or say what"):
        report(results, "-o", tmp_path / "x.pdf")
    assert report(results, "-o", tmp_path / "x.pdf", "--format", "latex").exit_code == 0


def test_an_empty_folder_is_a_sentence(report, tmp_path):
    with pytest.raises(StorageError, match=f"There is no run in {tmp_path};"):
        report(tmp_path)
