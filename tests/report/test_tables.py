from masil.report import Column, Row, Value, ablation_table, balance_table, concept_table, ranked, session_table, tables


def rows(table, group):
    return {row.label: row.texts(len(table.columns)) for row in table.groups[group].rows}


def test_a_value_as_people_write_it():
    assert Value(57.234).text() == "57.23"
    assert Value(57.234, 0.312).text() == "57.23 ± 0.31"
    assert Value(1.12, form="+.2f").text() == "+1.12"
    assert Value(-1.12, 0.5, form="+.2f").text() == "−1.12 ± 0.50"
    assert Value(-5.22e-4, form=".2e").text() == "−5.22e−04"
    assert Value().text() == "–"


def test_published_and_measured_rows_are_in_groups_of_their_own_and_what_was_not_run_is_said(record):
    table = session_table("cifar100", [record(sessions=3)])
    measured = "measured by masil: resnet18, trained by cifar100-fast, standard shots"
    assert [group.title for group in table.groups] == ["published (Khandelwal, 2023)", measured]
    assert list(rows(table, 1)) == ["MASIL (this package)"]
    assert rows(table, 1)["MASIL (this package)"][3] == "not run"
    assert len(table.groups[0].rows) == 14
    assert all(not row.detail for row in table.groups[0].rows)
    assert rows(session_table("cifar100", []), 1) == {"every method": ["not run"] + [""] * 10}
    table = session_table("characters", [record(protocol="characters", sessions=7)])  # which the paper does not have
    assert [group.title.partition(":")[0] for group in table.groups] == ["measured by masil"]
    assert len(table.columns) == 9


def test_runs_of_one_setting_share_a_group_and_are_compared_within_it(record):
    few, many = (55.0,), (57.0, 57.5)
    table = session_table("cifar100", [record(), record("teen", few), record(lasts=many), record("teen", many)])
    settings = [group.title.rpartition(", ")[2] for group in table.groups[1:]]
    assert settings == ["2 draws", "standard shots"]
    assert rows(table, 1)["TEEN"][-1] == "+0.00"  # not 55 − 57.25: MASIL on one draw is another setting


def test_a_method_that_trains_in_its_own_way_is_compared_with_those_of_the_same_recipe(record):
    table = session_table("cifar100", [record(), record("alice", (52.0,), recipe="cifar100-fast+alice")])
    assert [len(group.rows) for group in table.groups[1:]] == [2]
    alice, masil = table.groups[1].rows
    assert (alice.detail, masil.detail) == ("own base session", "")
    assert alice.values[-1].text() == "+3.00"


def test_relative_improvement_is_computed_within_a_group_and_best_for_the_same_weights(record):
    table = session_table(
        "cifar100", [record(), record("d-cosine", (52.5,)), record("teen", (54.0,), backbone="other")]
    )
    published, measured = rows(table, 0), rows(table, 1) | rows(table, 2)
    assert published["ALICE"][-1] == "+3.13"  # the paper prints +2.05
    assert published["NC-FSCIL"][-1] == "+1.12"
    assert published["MASIL"][-1] == "–"
    assert measured["D-Cosine"][-1] == "+2.50"
    assert measured["TEEN"][-1] == "–"  # no MASIL on its backbone
    assert any("56.15" in note for note in table.notes)
    runs = [record(weights="a"), record(lasts=(60.0,), weights="b"), record("teen", (50.0,), weights="b")]
    assert rows(session_table("cifar100", runs), 1)["TEEN"][-1] == "+10.00"


def test_several_draws_are_a_mean_and_a_deviation(record):
    table = session_table("cifar100", [record(lasts=(54.0, 55.0, 56.0))])
    texts = rows(table, 1)["MASIL (this package)"]
    assert texts[0] == "80.00 ± 0.00"
    assert texts[8] == "55.00 ± 1.00"
    assert texts[9] == "67.50 ± 0.50"
    assert table.groups[1].title.endswith("3 draws")
    assert table.notes[0].startswith("Mean ± standard deviation")


def test_tables_are_of_the_protocols_that_were_run(record):
    mine = [record(protocol="squares"), record("nc-ce", protocol="squares")]
    assert [table.title for table in tables(mine)] == [
        "squares: all methods", "squares: accuracy by session, %", "squares: old and new classes, and cost"
    ]  # fmt: skip
    ablation = tables([record("nc-ce"), record(), record(lasts=(54.0, 55.0))])[-1]
    assert ablation.title.startswith("Ablation")
    assert len(ablation.groups) == 2  # published, and the setting in which more than this package's was played


def test_the_best_of_a_group_is_marked_as_shown():
    columns = (Column("a", rank=True), Column("b"))
    marked = ranked(columns, [Row("x", (Value(1.001), Value(2.0))), Row("y", (Value(1.004), Value(1.0))), Row("z")])
    assert [[value.best for value in row.values] for row in marked] == [[True, False], [True, False], []]
    alone = ranked(columns, [Row("x", (Value(1.0), Value(2.0))), Row("z")])
    assert not alone[0].values[0].best


def test_balance_of_old_and_new(record):
    texts = rows(balance_table("cifar100", [record()]), 0)["MASIL (this package)"]
    assert texts == ["60.00", "35.00", "45.00", "25.00", "40.00", "13.50", "1.50"]


def test_ablation_has_five_rows_and_three_data_sets(record):
    nothing = ablation_table([])
    assert [len(group.rows) for group in nothing.groups] == [5, 6]
    assert set(map(tuple, rows(nothing, 1).values())) == {("not run", "", "", "", "", "")}
    assert nothing.headings()[2:4] == ["CIFAR-100 final", "CIFAR-100 average"]
    some = ablation_table([record(), record("nc-fscil", (50.0,)), record("teen")])
    measured = rows(some, 1)
    assert measured["MASIL (this package)"] == ["not run", "not run", "55.00", "67.50", "not run", "not run"]
    assert measured["NC + ETF loss"][2] == "50.00"
    assert measured["NC + CE"] == ["not run"] * 6
    assert rows(some, 0)["NC + CE"][0] == "56.66"
    newest = ablation_table([record(started="2026-02-01"), record(lasts=(40.0,), started="2026-01-01")])
    assert rows(newest, 1)["MASIL (this package)"][2] == "55.00"
    assert "newest" in newest.notes[-1]


def test_concept_cosines(record):
    run = record(extras={"concept_cosine": {"plain": 0.17, "centred": -0.0159}})
    table = concept_table([run])
    assert rows(table, 0)["CIFAR-100"] == ["−8.78e−03"]
    assert rows(table, 1) == {"CIFAR-100, centred": ["−1.59e−02"], "CIFAR-100, plain": ["1.70e−01"]}
    assert rows(concept_table([record()]), 1) == {"every data set": ["not run"]}
