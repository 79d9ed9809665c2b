import pytest

from masil.report import published, published_ablation, published_concept_cosines


def test_known_cells_of_the_papers_tables():
    cifar = {row.method: row for row in published("cifar100")}
    assert cifar["MASIL"].sessions == (82.55, 76.98, 73.44, 69.75, 66.48, 62.98, 61.4, 59.81, 57.23)
    assert cifar["NC-FSCIL"].average == 67.50
    assert cifar["iCaRL"].last == 13.73
    assert published("cub200")[-1].last == 60.24
    assert published("miniimagenet")[0].sessions[1] == 46.32
    assert published("characters") == published("../cifar100") == ()  # the paper does not have them


@pytest.mark.parametrize(
    ("protocol", "rows", "sessions"), [("miniimagenet", 16, 9), ("cifar100", 14, 9), ("cub200", 22, 11)]
)
def test_every_row_is_there_and_masil_is_the_last(protocol, rows, sessions):
    table = published(protocol)
    assert len(table) == rows
    assert {len(row.sessions) for row in table} == {sessions}
    assert table[-1].method == "MASIL"


def test_printed_averages_are_means_but_for_the_one_the_notes_name():
    off = [
        row.method
        for protocol in ("miniimagenet", "cifar100", "cub200")
        for row in published(protocol)
        if abs(sum(row.sessions) / len(row.sessions) - row.average) > 0.0101  # some are cut off, not rounded
    ]
    assert off == ["Self-promoted"]


def test_ablation_and_concept_cosines():
    ablation = published_ablation()
    assert list(ablation) == ["Learnable + CE", "NC + CE", "NC + ETF loss", "NC + ETF loss + CF", "MASIL"]
    assert ablation["NC + CE"]["miniimagenet"] == (56.66, 68.23)
    assert ablation["MASIL"]["cub200"] == (60.24, 67.54)
    assert published_concept_cosines() == {"miniimagenet": -5.22e-4, "cifar100": -8.78e-3, "cub200": -4.54e-4}
