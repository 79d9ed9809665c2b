from dataclasses import replace

import pytest
from scipy import stats

from masil.benchmark import summary
from masil.errors import InputError, UnknownNameError
from masil.report import balance_table, by_shots, leaderboards, pictures, results_markdown, select, session_table


def by_column(table, label):
    row = next(row for row in table.groups[0].rows if row.label == label)
    return dict(zip(table.headings(), row.texts(len(table.columns)), strict=True))


def test_a_method_is_one_row_with_draws_standard_shots_and_published_figures_apart(record):
    three = (54.0, 55.0, 56.0)
    (board,) = leaderboards("cifar100", [record(lasts=three), record("alice", (51.0, 50.0, 55.0)), record("alice")])
    assert [row.label for row in board.groups[0].rows] == ["MASIL (this package)", "ALICE"]  # the best is first
    alice = by_column(board, "ALICE")
    assert alice["3 draws last"] == "52.00 ± 2.65"
    assert alice["standard shots last"] == "55.00"
    assert (alice["published last"], alice["published average"]) == ("54.10", "63.21")
    assert (alice["trains"], alice["keeps"], alice["MB"], alice["seconds"]) == ("nothing", "means", "1.5", "13.5")
    assert by_column(board, "MASIL (this package)")["standard shots last"] == "–"
    assert by_column(board, "MASIL (this package)")["keeps"] == "means, weights"
    assert by_column(board, "MASIL (this package)")["published last"] == "–"  # the paper's is another
    (written,) = leaderboards("cifar100", [record(), record("masil-as-written")])
    assert by_column(written, "MASIL (as the paper writes it)")["published last"] == "57.23"
    (linked,) = leaderboards("cifar100", [record()], link=lambda run: f"{run.method}.json")
    assert linked.groups[0].rows[0].values[-1].link == "masil.json"


def test_standard_shots_and_draws_of_one_run_are_columns_and_rows_of_their_own(record):
    run = record(lasts=(85.0, 54.0, 55.0, 56.0))
    draws = tuple(replace(draw, draw=None if place == 0 else place - 1) for place, draw in enumerate(run.draws))
    cosines = [{"train": [[0.9, value]], "test": [[0.9, value]]} for value in (0.7, 0.1, 0.2, 0.3)]
    extras = {"cosines_by_draw": cosines, "cosines": cosines[0]}
    mixed = replace(run, draws=draws, asked=(None, 0, 1, 2), extras=extras)
    (board,) = leaderboards("cifar100", [mixed])
    masil = by_column(board, "MASIL (this package)")
    assert (masil["3 draws last"], masil["standard shots last"]) == ("55.00 ± 1.00", "85.00")
    for table in (session_table("cifar100", [mixed]), balance_table("cifar100", [mixed])):
        settings = [group.title for group in table.groups if group.title.startswith("measured")]
        assert [title.rpartition(", ")[2] for title in settings] == ["3 draws", "standard shots"]
    assert summary(mixed.draws)["last"] == 55.0  # as JSON has it
    page = results_markdown([mixed])
    assert "55.00 ± 1.00" in page
    assert "62.50" not in page  # the mean of all four
    assert [curve.get_ydata()[-1] for curve in pictures([mixed])[0].figure.axes[0].lines[:1]] == [55.0]
    (drawn,) = select(list(by_shots([mixed])), only=["3 draws"])
    assert drawn.extras["cosines"]["test"][0] == pytest.approx([0.9, 0.2])
    gone = replace(mixed, draws=draws[:1])
    assert list(by_shots([gone])) == [gone]  # its draws are still said to be missing


def test_a_difference_is_paired_by_draw_and_has_the_interval_of_a_t_test(record):
    ours, theirs = (54.0, 55.0, 56.5), (51.0, 50.0, 55.0)
    (board,) = leaderboards("cifar100", [record(lasts=ours), record("teen", theirs), record("fecam", (53.0,))])
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    expected = f"+3.17 [{interval.low:.2f}, {interval.high:.2f}]".replace("-", "−")
    assert by_column(board, "TEEN")["MASIL (this package) ahead"] == expected
    assert by_column(board, "TEEN")["ahead in HM"] == expected  # which is made up to be 10 less than accuracy
    assert by_column(board, "FeCAM")["ahead in HM"] == "–"
    assert by_column(board, "FeCAM")["MASIL (this package) ahead"] == "–"  # it has no draw that ours has
    assert by_column(board, "MASIL (this package)")["MASIL (this package) ahead"] == "–"
    (board,) = leaderboards("cifar100", [record(lasts=ours), record("teen", theirs)], ours="teen")
    assert by_column(board, "MASIL (this package)")["TEEN ahead"].startswith("−3.17 [")
    other = [record(lasts=ours), record("teen", theirs, data_checksum="other images")]
    assert by_column(leaderboards("cifar100", other)[0], "TEEN")["MASIL (this package) ahead"] == "–"


def test_every_base_session_has_a_table_that_says_its_budget_and_what_waits(record):
    history = [{"epoch": 1}, {"epoch": 2}]
    runs = [
        record(recipe="short", extras={"history": history}, waiting="to be played again"),
        record(), record("teen"), record("alice", recipe="cifar100-fast+alice"),
    ]  # fmt: skip
    first, second = leaderboards("cifar100", runs)
    assert first.groups[0].title == "resnet18, trained by cifar100-fast"
    assert [row.detail for row in first.groups[0].rows if row.label == "ALICE"] == ["own base session"]
    assert second.groups[0].title == "resnet18, trained by short, 2 epochs"
    assert second.groups[0].rows[0].detail == "waiting"
    assert second.notes[-1] == "Waiting: to be played again."


def test_a_row_says_how_many_descents_diverged(record):
    lowered = {"2": 0.125, "7": 0.125}
    two = record(lasts=(54.0, 55.0), extras={"diverged_by_draw": [lowered, {"3": 0.0}]})
    old = record("nc-fscil", extras={"own_base": True, "diverged, so played at a lower rate": lowered})
    remarks = [leaderboards("cifar100", [run])[0].groups[0].rows[0].detail for run in (two, old, record())]
    assert remarks == [
        "3 descents diverged in 2 draws, played again at a lower rate, 1 of them in vain",
        "2 descents diverged, played again at a lower rate",
        "",
    ]


def test_where_a_shared_backbone_stays_as_it_is_the_head_alone_is_the_method_s(record):
    runs = [
        record("limit"),
        record("nc-fscil", extras={"own_base": True}),
        record("nc-ce", recipe="cifar100-fast+nc-ce"),
    ]
    (board,) = leaderboards("cifar100", [*runs, record("teen")])
    details = {row.label: row.detail for row in board.groups[0].rows}
    assert details == {"LIMIT": "head only", "NC-FSCIL": "", "NC + CE": "own base session", "TEEN": ""}


def test_runs_are_chosen_by_method_and_by_setting(record):
    runs = [record(), record("teen"), record("teen", (50.0, 51.0)), record("teen", protocol="cub200")]
    assert select(runs, methods=["teen"]) == runs[1:]
    assert select(runs, only=["CIFAR100", "2 draws"]) == [runs[2]]
    with pytest.raises(UnknownNameError, match="no method among these runs called 'ten'; did you mean 'teen'"):
        select(runs, methods=["ten"])
    with pytest.raises(
        InputError, match="No run has 'frozen' in its protocol or setting; there are: cifar100: resnet18"
    ):
        select(runs, only=["frozen"])


def test_a_balanced_method_has_the_name_and_the_habits_of_its_method(record):
    (board,) = leaderboards("cifar100", [record(), record("teen+balance", (50.0,)), record("mine+balance", (49.0,))])
    assert [row.label for row in board.groups[0].rows][1:] == ["TEEN + balance", "mine+balance"]
    assert by_column(board, "TEEN + balance")["keeps"] == "means"
    assert by_column(board, "mine+balance")["keeps"] == "–"
