"""Base sessions that are trained beside one another end where they would have ended one after the other."""

from dataclasses import replace

import pytest
import torch

from masil.benchmark import BaseSession, side_by_side, train_all
from masil.errors import MasilError
from masil.training import Monitoring, Recipe, Sgd

TINY = Recipe(
    "tiny", ((1, 8), (1, 16)), backbone="resnet20", width=0.25, framing=(20, 20), batch=16, compile=False,
    watch=Monitoring(nc_images=2),
)  # fmt: skip


@pytest.fixture
def planned(patterns, tmp_path):
    """Two base sessions that differ in their seed."""
    return [
        BaseSession(patterns[0], replace(TINY, name=f"tiny-{seed}", seed=seed), tmp_path / str(seed)) for seed in (0, 1)
    ]


@pytest.mark.usefixtures("one_thread")
def test_two_children_train_what_one_process_trains(planned, patterns, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("masil.benchmark.base_sessions.usable_cores", lambda: 2)
    _, dataset = patterns
    finished = list(train_all([(base, dataset) for base in planned], "cpu"))
    assert {base.folder for base, _ in finished} == {base.folder for base in planned}
    for base, beside in finished:
        assert base.finished
        diary = (base.folder / "log.txt").read_text(encoding="utf-8")
        assert "epoch 1/2" in diary
        assert "epoch 2/2" in diary
        alone = replace(base, folder=tmp_path / f"alone {base.recipe.seed}").train(dataset, "cpu")
        assert beside.names == alone.names
        torch.testing.assert_close(beside.class_vectors, alone.class_vectors, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(*(trained.class_vectors for _, trained in finished), atol=1e-2)


def test_a_finished_base_session_is_not_sent_to_a_child(planned, patterns, monkeypatch):
    monkeypatch.setattr("masil.benchmark.base_sessions.usable_cores", lambda: 2)
    pairs = [(base, patterns[1]) for base in planned]
    assert side_by_side(planned, "cpu") == 2
    assert side_by_side(planned, "cpu", jobs=1) == 1
    assert [base.folder for base, _ in train_all(pairs, "cpu", jobs=1)] == [base.folder for base in planned]
    assert side_by_side(planned, "cpu") == 0
    monkeypatch.setattr("masil.benchmark.base_sessions.Children", None)  # nothing starts any
    assert len(list(train_all(pairs, "cpu"))) == 2


def test_processes_of_torchrun_train_one_at_a_time(planned, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert side_by_side(planned, "cpu") == 1


def test_a_child_that_diverges_says_so(planned, patterns, monkeypatch):
    monkeypatch.setattr("masil.benchmark.base_sessions.usable_cores", lambda: 2)
    wild = [replace(base, recipe=replace(base.recipe, sgd=Sgd(lr=1e30))) for base in planned]
    with pytest.raises(MasilError, match=r"became .* in epoch|not finite after epoch"):
        list(train_all([(base, patterns[1]) for base in wild], "cpu"))
