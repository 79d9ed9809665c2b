import re

import pytest

from masil.errors import InputError
from masil.report import html_report, write_report


def test_the_page_is_one_well_formed_file_that_needs_no_network(record, parse, tmp_path):
    path = write_report([record(lasts=(54.0, 55.0)), record("teen", (50.0, 51.0))], tmp_path)
    text = path.read_text(encoding="utf-8")
    page = parse(text)
    assert path == tmp_path / "report.html"
    assert not re.search(r"https?://|@import|<script|<link|src=", text)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.all("svg"))
    assert all("scope" in heading for heading in page.all("th"))
    assert len(page.all("table")) == len(page.all("caption"))
    assert page.all("html") == [{"lang": "en"}]
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert sorted(file.name for file in (tmp_path / "figures").iterdir()) == [
        f"cifar100-fast-2-draws-{name}.{kind}"
        for name in ("accuracy", "base-novel", "masil-this-package-confusion", "time")
        for kind in ("pdf", "svg")
    ]


def test_figures_of_an_earlier_report_go_and_others_stay(record, tmp_path):
    figures = tmp_path / "figures"
    write_report([record(lasts=(54.0, 55.0)), record("teen", (50.0, 51.0))], tmp_path)
    others = {"my-accuracy.svg", "characters-fast-2-draws-accuracy.svg"}
    for name in others:
        (figures / name).touch()
    earlier = {file.name for file in figures.iterdir()}
    write_report([record(lasts=(54.0, 55.0, 56.0)), record("teen", (50.0, 51.0, 52.0))], tmp_path)
    expected = {name if name in others else name.replace("2-draws", "3-draws") for name in earlier}
    assert {file.name for file in figures.iterdir()} == expected


def test_it_says_the_numbers_and_how_to_measure_them_again(record):
    text = html_report([record(lasts=(54.0, 55.0, 56.0))])
    assert "<h1>MASIL (this package) on CIFAR-100</h1>" in text
    assert '55.00<span class="spread">±&#8239;1.00</span>' in text
    assert "published MASIL 57.23" in text
    assert "git checkout 1a1d552\nmasil run cifar100 --method masil" in text
    for fact in (
        "a processor",
        "sha256:0a1b",
        "torch 2.13",
        "2026-01-02T03:04:05+00:00",
        "4 min 09 s",  # three draws
        "seeds 0, 1, 2",
    ):
        assert fact in text


def test_text_of_a_record_is_shown_and_never_obeyed(record):
    nasty = '"><script>alert(1)</script>'
    text = html_report([record(nasty, protocol=nasty, backbone=nasty, command=nasty, machine={"cpu": nasty})])
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_the_same_runs_in_any_order_give_the_same_page_with_an_ablation_where_a_row_of_it_was_run(record):
    runs = [record(sessions=2), record(protocol="characters", sessions=1)]
    page = html_report(runs)
    assert page == html_report(runs[::-1])
    assert "Ablation" not in page
    assert "<caption>Ablation: accuracy" in html_report([record("nc-ce", sessions=2)])


def test_runs_that_cannot_be_shown_are_sentences(record):
    with pytest.raises(InputError, match="There is no run to report"):
        html_report([])
    with pytest.raises(InputError, match="'masil' on 'cifar100' holds no session"):
        html_report([record(draws=())])
    uneven = record().draws + record(sessions=4).draws
    with pytest.raises(InputError, match="draws of 4 and of 9 sessions"):
        html_report([record(draws=uneven)])
