"""The plan of the paper's experiments: which base sessions, shared by which rows."""

from dataclasses import replace
from pathlib import Path

import pytest

from masil.benchmark import (
    ALL,
    BUDGETS,
    Origin,
    estimate_seconds,
    plan_reproduction,
    play_base,
    prepare,
    train_all,
    trained_setting,
    with_weights,
)
from masil.benchmark import reproduce as module
from masil.errors import StorageError, UnknownNameError
from masil.protocol import PROTOCOLS
from masil.storage import write_json
from masil.training import RECIPES, Monitoring, Recipe, Schedule

pytestmark = pytest.mark.filterwarnings("ignore::masil.concepts.NMFConvergenceWarning")


@pytest.mark.parametrize("budget", BUDGETS)
def test_each_objective_is_trained_once_for_each_data_set(budget):
    planned = plan_reproduction(ALL, BUDGETS[budget], Path("out"))
    assert len(planned) == 12
    assert len({base.folder for base in planned}) == 12
    for protocol in ("miniimagenet", "cifar100", "cub200"):
        bases = [base for base in planned if base.protocol.name == protocol]
        shared = {base.methods: base.recipe for base in bases}
        methods = {method: recipe for names, recipe in shared.items() for method in names}
        loss = {method: recipe.loss for method, recipe in methods.items()}
        assert loss["nc-fscil"] == loss["cf-as-written"] == loss["masil-as-written"]
        assert (loss["nc-fscil"]["term"], loss["nc-fscil"]["frame_shape"]) == ("dot-regression", "simplex")
        assert (loss["nc-ce"]["term"], loss["nc-ce"]["frame_shape"]) == ("cross-entropy", "simplex")
        assert (loss["learnable-ce"]["term"], loss["learnable-ce"]["frame_shape"]) == ("cross-entropy", None)
        assert loss["masil"]["name"] == "cosine"
        assert len(bases) == 4
        for method in ("nc-fscil", "nc-ce", "learnable-ce"):
            assert methods[method].name == f"{protocol}-paper{BUDGETS[budget].suffix}+{method}"
            assert methods[method].schedule == RECIPES[f"{protocol}-paper{BUDGETS[budget].suffix}"].schedule


def test_birds_start_from_a_file_of_weights(tmp_path):
    planned = plan_reproduction(["table2", "table3"], BUDGETS["quick"], tmp_path)
    file = tmp_path / "resnet18.safetensors"
    with pytest.raises(StorageError, match=r"'cub200-paper-quick\+nc-fscil' starts from an ImageNet ResNet-18"):
        with_weights(planned, file)
    file.touch()
    weights = {base.recipe.name: base.recipe.weights for base in with_weights(planned, file)}
    assert weights["cub200-paper-quick+nc-fscil"] == weights["cub200-gentle-resnet18"] == str(file)
    assert weights["cifar100-paper-quick+nc-fscil"] is None


def test_a_part_needs_only_its_own_rows():
    (one,) = plan_reproduction(["concepts"], BUDGETS["quick"], Path("out"))[1:2]
    assert one.methods == ("masil-as-written",)
    with pytest.raises(UnknownNameError, match="no part of the paper called 'tabel1'; did you mean 'table1'"):
        plan_reproduction(["tabel1"], BUDGETS["quick"], Path("out"))


def test_one_data_set_can_be_played_alone():
    planned = plan_reproduction(ALL, BUDGETS["quick"], Path("out"), only=["cifar100"])
    assert [base.protocol.name for base in planned] == ["cifar100"] * 4
    with pytest.raises(UnknownNameError, match="called 'cub200'; known are: cifar100"):
        plan_reproduction(["table2"], BUDGETS["quick"], Path("out"), only=["cub200"])


TINY = Recipe(
    "patterns-paper-quick", ((1, 8), (1, 16)), backbone="resnet20", width=0.25, framing=(20, 20), batch=16,
    compile=False, schedule=Schedule(shape="cosine", warmup=0.0, cycles=2), watch=Monitoring(nc_images=2),
)  # fmt: skip


@pytest.fixture
def part(patterns, monkeypatch):
    """Patterns that stand in for a data set of the paper."""
    monkeypatch.setattr(module, "PROTOCOLS", {**PROTOCOLS, "patterns": patterns[0]})
    monkeypatch.setattr(module, "PARTS", {"patterns": (("patterns",), module.ABLATION)})
    monkeypatch.setitem(RECIPES, "patterns-paper-quick", TINY)
    monkeypatch.setitem(RECIPES, "patterns-fast", replace(TINY, name="patterns-fast"))
    return patterns


def test_rows_share_base_sessions_and_are_what_their_names_say(part, tmp_path, caplog):
    dataset = part[1]
    budget = replace(BUDGETS["quick"], own={"patterns": "patterns-fast"}, bank=4)
    planned = plan_reproduction(["patterns"], budget, tmp_path)
    assert [base.methods for base in planned] == [
        ("learnable-ce",), ("nc-ce",), ("nc-fscil", "cf-as-written", "masil-as-written"), ("masil",)
    ]  # fmt: skip
    before = estimate_seconds(planned, {"patterns": dataset}, "cpu")
    assert all(time > 0 for time in before)
    for base, trained in train_all([(base, dataset) for base in planned[2:]], "cpu", jobs=1):
        setting = trained_setting(base, dataset, trained, "cpu")
        grid = play_base(base, setting, budget, draws=2, out=tmp_path, workers=1)
        assert grid.failed == {}
        assert [record.method for record in grid.runs] == list(base.methods)
        for record in grid.runs:
            assert record.recipe == base.recipe.name
            assert [draw.draw for draw in record.draws] == [0, 1]  # there are no standard shots
            assert len(record.extras["cosines_by_draw"]) == 2
            if record.method.endswith("as-written"):
                assert record.given == {"images": 4}
                assert record.extras["bank"] == {"concepts": 16, "crops": 10, "side": 18, "rows": 160}
            moved = record.extras.get("moved", {"base": 0.0})
            assert (moved["base"] > 0) == (record.method == "masil-as-written")
    assert "has the shared backbone here" not in caplog.text
    after = estimate_seconds(planned, {"patterns": dataset}, "cpu")
    assert [time > 0 for time in after] == [True, True, False, False]


@pytest.mark.parametrize(("budget", "images"), [("quick", 10), ("leg", 100), ("full", None)])
def test_rows_are_played_on_the_standard_shots_and_on_draws_with_the_bank_of_their_budget(
    with_standard_shots, tmp_path, monkeypatch, budget, images
):
    asked = {}

    def noted(setting, entries, draws, **_):
        asked.update(draws=draws, given={entry.name: entry.given for entry in entries})

    monkeypatch.setattr(module, "bench", noted)
    base = module.BaseSession(with_standard_shots.protocol, TINY, tmp_path, module.ABLATION)
    play_base(base, with_standard_shots, BUDGETS[budget], draws=3, out=tmp_path)
    assert asked["draws"] == [None, 0, 1, 2]
    bank = {} if images is None else {"images": images}
    assert asked["given"] == {
        name: bank if name in ("cf-as-written", "masil-as-written") else {} for name in module.ABLATION
    }


def test_epochs_that_are_done_are_not_counted_again(tmp_path):
    base = plan_reproduction(["characters"], BUDGETS["quick"], tmp_path)[0]
    assert base.epochs_done == 0
    write_json(base.folder / "history.json", [{}, {}])
    assert base.epochs_done == 2


def test_a_base_session_of_another_objective_is_refused_by_a_row_that_needs_the_frame(patterns, tmp_path):
    shape, dataset = patterns
    setting = prepare(shape, Origin(recipe=TINY, folder=tmp_path / "base"), dataset=dataset, device="cpu")
    base = module.BaseSession(shape, TINY, tmp_path / "base", ("masil-as-written",))
    failed = play_base(base, setting, BUDGETS["quick"], draws=1, out=tmp_path, workers=1).failed
    (sentence,) = failed.values()
    assert "needs a base session that dot-regression has drawn onto a simplex of all 6 classes" in sentence
    assert "was trained by 'patterns-paper-quick', cosine." in sentence
