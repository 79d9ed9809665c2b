"""Many ask while some teach: no error, no half model, and nobody's lesson is lost, here or in another program."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from masil.errors import InputError, StorageError
from masil.learner import Masil
from masil.studio.keeper import Keeper


@pytest.fixture
def keeper(model_file):
    return Keeper(model_file, device="cpu")


def teach(keeper, photo, name, kind=7):
    from masil.studio.limits import Limits
    from masil.studio.photos import decode_uploads

    photos = decode_uploads([("", photo(kind, seed)) for seed in range(2)], keeper.framing, Limits())
    return keeper.change(lambda model: model.learn(photos, [name] * 2))


def test_whoever_has_a_model_keeps_it_as_it_was(keeper, photo):
    before = keeper.model
    labels, log = before.memory_.labels, before.log_
    teach(keeper, photo, "new")
    assert before.memory_.labels == labels
    assert before.log_ == log
    assert keeper.model.memory_.labels == (*labels, "new")
    assert Masil.load(keeper.path, device="cpu").memory_.labels == (*labels, "new")


def test_a_step_that_fails_changes_nothing(keeper):
    raw, before = keeper.path.read_bytes(), keeper.model

    def half(model):
        model.forget("k0")
        raise InputError("No further.")

    with pytest.raises(InputError, match="No further"):
        keeper.change(half)
    assert keeper.model is before
    assert "k0" in before.memory_.labels
    assert keeper.path.read_bytes() == raw


def test_saving_that_fails_changes_nothing(keeper, photo, monkeypatch):
    before = keeper.model

    def fail(*_args):
        raise StorageError("The disk is full.")

    monkeypatch.setattr(Masil, "save", fail)
    with pytest.raises(StorageError, match="full"):
        teach(keeper, photo, "new")
    assert keeper.model is before


def test_what_another_program_taught_is_not_lost(keeper, photo):
    other = Masil.load(keeper.path, device="cpu")
    other.learn(np.zeros((1, 32, 32, 3), np.uint8), ["elsewhere"])
    other.save(keeper.path)
    assert "elsewhere" in keeper.model.memory_.labels
    other.learn(np.full((1, 32, 32, 3), 9, np.uint8), ["elsewhere, too"])
    other.save(keeper.path)
    teach(keeper, photo, "here")
    assert set(Masil.load(keeper.path, device="cpu").memory_.labels) >= {"elsewhere", "elsewhere, too", "here"}


def test_a_file_that_was_damaged_or_deleted_meanwhile(keeper, photo, caplog):
    raw = keeper.path.read_bytes()
    keeper.path.write_bytes(raw[:1000])
    assert len(keeper.model.memory_.labels) == 5
    assert "has changed but is not served" in caplog.text
    with pytest.raises(StorageError, match="damaged"):
        teach(keeper, photo, "new")
    keeper.path.unlink()
    assert len(keeper.model.memory_.labels) == 5
    with pytest.raises(StorageError, match="There is no model at"):
        teach(keeper, photo, "new")
    keeper.path.write_bytes(raw)
    teach(keeper, photo, "new")
    assert "new" in Masil.load(keeper.path, device="cpu").memory_.labels


def test_another_backbone_needs_another_start(keeper, tmp_path, fitted_file, caplog):
    from masil.backbones import create
    from masil.data import Framing

    pixels = np.random.default_rng(0).integers(0, 255, (6, 32, 32, 3)).astype(np.uint8)
    backbone = create("resnet20", seed=2, framing=Framing(32, 32))
    Masil(backbone, concepts=2, device="cpu", alpha=0.3).fit(pixels, list("aabbcc")).save(keeper.path)
    assert "k0" in keeper.model.memory_.labels
    assert "now has another backbone; start `masil serve` again" in caplog.text


def test_a_model_without_a_backbone_cannot_be_shown_photos(tmp_path):
    rows = np.random.default_rng(0).random((12, 8)).astype(np.float32)
    Masil(backbone=None, concepts=2).fit(rows, list("aaaabbbbcccc")).save(tmp_path / "m")
    with pytest.raises(InputError, match="takes activations and has no backbone, so it cannot be shown photos"):
        Keeper(tmp_path / "m", device="cpu")


def test_two_who_teach_at_once_both_land(client, files, model_file):
    def learn(name):
        return client.post("/api/learn", files=files(7, 2), data={"name": name}).status_code

    names = [f"new {place}" for place in range(6)]
    with ThreadPoolExecutor(6) as people:
        assert list(people.map(learn, names)) == [200] * 6
    on_disk = Masil.load(model_file, device="cpu")
    assert set(on_disk.memory_.labels) == {"k0", "k1", "k2", "k3", "k4", *names}
    assert [record.number for record in on_disk.sessions_] == list(range(7))


def test_predictions_go_on_while_classes_come_and_go(client, files):
    """Every answer is one model's: its revision says which classes there were, and no other one is named."""
    classes = {1: {f"k{kind}" for kind in range(5)}}
    stop, answers = threading.Event(), []

    def ask():
        while not stop.is_set():
            answers.append(client.post("/api/predict", files=files(7), data={"top": "50"}))

    with ThreadPoolExecutor(4) as people:
        asking = [people.submit(ask) for _ in range(4)]
        for turn in range(4):
            learnt = client.post("/api/learn", files=files(7, 3), data={"name": f"new {turn}"}).json()
            classes[learnt["revision"]] = classes[learnt["revision"] - 1] | {f"new {turn}"}
            if turn % 2:
                undone = client.post("/api/undo").json()
                classes[undone["revision"]] = classes[undone["revision"] - 1] - {f"new {turn}"}
        stop.set()
        for each in asking:
            each.result()
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["revision"] for answer in answers}) > 1
    for answer in (each.json() for each in answers):
        top = answer["predictions"][0]["top"]
        assert {share["label"] for share in top} == classes[answer["revision"]]
        assert sum(share["probability"] for share in top) == pytest.approx(1)
