from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from masil.report import order_table, pictures, published

REVERSED = {"masil-as-written": 41.0, "nc-fscil": 42.0, "alice": 43.0, "limit": 44.0, "d-cosine": 45.0, "icarl": 46.0}
TITLES = ("MASIL", "NC-FSCIL", "ALICE", "LIMIT", "D-Cosine", "iCaRL")  # the same in the paper's table


@pytest.mark.parametrize("seed", range(5))
def test_the_correlation_is_that_of_the_accuracies_with_ties_too(record, seed):
    lasts = np.random.default_rng(seed).integers(40, 44, len(REVERSED)).astype(float)
    table = order_table("cifar100", [record(method, (last,)) for method, last in zip(REVERSED, lasts, strict=True)])
    printed = {row.method: row.last for row in published("cifar100")}
    expected = stats.spearmanr([printed[name] for name in TITLES], lasts).statistic
    assert f"ρ {expected:.2f} over 6".replace("-", "−") in table.groups[0].title


def test_an_order_turned_round_has_minus_one_and_far_moves_get_a_word(record):
    runs = [record(method, (last,)) for method, last in (REVERSED | {"cec": 40.0}).items()]
    table = order_table("cifar100", runs)
    assert table is not None
    rows = {row.label: row.texts(4) for row in table.groups[0].rows}
    assert list(rows) == ["MASIL", "NC-FSCIL", "ALICE", "LIMIT", "CEC", "D-Cosine", "iCaRL"]  # as published
    assert rows["iCaRL"][:3] == ["7", "1", "−6"]
    assert rows["iCaRL"][3] == "published is the table code, played the authors' form"
    assert rows["MASIL"][:3] == ["1", "6", "+5"]
    assert rows["MASIL"][3] == "–"  # five places are not more than five
    table = order_table("cifar100", runs[:-1])
    assert table is not None
    assert "ρ −1.00 over 6 methods" in table.groups[0].title


def test_what_waits_or_is_not_published_takes_no_part_and_the_best_variant_stands_for_a_row(record):
    runs = [record(method, (last,)) for method, last in REVERSED.items()]
    others = [record("teen", (99.0,)), record("masil", (99.0,)), record("d-cosine", (1.0,))]
    assert order_table("cifar100", [*runs, *others]) == order_table("cifar100", runs)
    assert order_table("cifar100", [replace(runs[0], waiting="to be played again"), *runs[1:5]]) is None
    assert order_table("characters", runs) is None


def test_the_code_of_the_fields_tables_stands_for_the_rows_that_it_made(record):
    runs = [record(method, (last,)) for method, last in REVERSED.items()]
    for place in (0, len(runs)):
        both = [*runs[:place], record("icarl-table", (1.0,)), *runs[place:]]
        table = order_table("cifar100", both)
        assert table is not None
        (icarl,) = [row.texts(4) for row in table.groups[0].rows if row.label == "iCaRL"]
        assert icarl == ["6", "6", "0", "–"]
    far = [*runs[:5], record("cec", (47.0,)), record("dsn", (48.0,)), record("icarl-table", (99.0,))]
    table = order_table("cifar100", far)
    assert table is not None
    assert table.groups[0].rows[-1].texts(4) == ["8", "1", "−7", "not explained"]


@pytest.mark.parametrize(("more", "words"), [({}, "−1.00"), ({"cec": 40.0}, "over 7 methods")])
def test_the_order_is_drawn_once_a_protocol_also_where_one_moved_far(record, more, words):
    drawn = pictures([record(method, (last,)) for method, last in (REVERSED | more).items()])
    (order,) = [picture for picture in drawn if picture.name == "cifar100-order"]
    assert words in order.words
