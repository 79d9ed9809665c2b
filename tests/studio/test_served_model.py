"""Many ask while some teach: no error, no half model, and nobody's lesson is lost, here or in another program."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from masil.backbones import create
from masil.data import Framing
from masil.errors import InputError, StorageError
from masil.learner import Masil
from masil.studio import Limits
from masil.studio.request_guard import RefusedError
from masil.studio.served_model import ServedModel, WorkQueue
from masil.studio.uploads import decode_uploads


@pytest.fixture
def served(model_file):
    return ServedModel(model_file, device="cpu")


def teach(served, photo, name):
    photos = decode_uploads([("", photo(7, seed)) for seed in range(2)], served.framing, Limits())
    return served.change(lambda model: model.learn(photos, [name] * 2))


def test_whoever_has_a_model_keeps_it_as_it_was(served, photo):
    before = served.model
    labels, log = before.memory_.labels, before.log_
    teach(served, photo, "new")
    assert before.memory_.labels == labels
    assert before.log_ == log
    assert served.model.memory_.labels == (*labels, "new")
    assert Masil.load(served.path, device="cpu").memory_.labels == (*labels, "new")


def test_a_step_that_fails_changes_nothing(served):
    raw, before = served.path.read_bytes(), served.model

    def half(model):
        model.forget("k0")
        raise InputError("No further.")

    with pytest.raises(InputError, match="No further"):
        served.change(half)
    assert served.model is before
    assert "k0" in before.memory_.labels
    assert served.path.read_bytes() == raw


def test_saving_that_fails_changes_nothing(served, photo, monkeypatch):
    before = served.model

    def fail(*_args):
        raise StorageError("The disk is full.")

    monkeypatch.setattr(Masil, "save", fail)
    with pytest.raises(StorageError, match="full"):
        teach(served, photo, "new")
    assert served.model is before


def test_what_another_program_taught_is_not_lost(served, photo):
    other = Masil.load(served.path, device="cpu")
    other.learn(np.zeros((1, 32, 32, 3), np.uint8), ["elsewhere"])
    other.save(served.path)
    assert "elsewhere" in served.model.memory_.labels
    other.learn(np.full((1, 32, 32, 3), 9, np.uint8), ["elsewhere, too"])
    other.save(served.path)
    teach(served, photo, "here")
    assert set(Masil.load(served.path, device="cpu").memory_.labels) >= {"elsewhere", "elsewhere, too", "here"}


def test_a_file_that_was_damaged_or_deleted_meanwhile(served, photo, caplog):
    raw = served.path.read_bytes()
    served.path.write_bytes(raw[:1000])
    assert len(served.model.memory_.labels) == 5
    assert "has changed but is not served" in caplog.text
    with pytest.raises(StorageError, match="damaged"):
        teach(served, photo, "new")
    served.path.unlink()
    assert len(served.model.memory_.labels) == 5
    with pytest.raises(StorageError, match="There is no model at"):
        teach(served, photo, "new")
    served.path.write_bytes(raw)
    teach(served, photo, "new")
    assert "new" in Masil.load(served.path, device="cpu").memory_.labels


def test_another_backbone_needs_another_start(served, caplog):
    pixels = np.random.default_rng(0).integers(0, 255, (6, 32, 32, 3)).astype(np.uint8)
    backbone = create("resnet20", seed=2, framing=Framing(32, 32))
    Masil(backbone, concepts=2, device="cpu", alpha=0.3).fit(pixels, list("aabbcc")).save(served.path)
    assert "k0" in served.model.memory_.labels
    assert "now has another backbone; start `masil serve` again" in caplog.text


def test_a_model_without_a_backbone_cannot_be_shown_photos(tmp_path):
    rows = np.random.default_rng(0).random((12, 8)).astype(np.float32)
    Masil(backbone=None, concepts=2).fit(rows, list("aaaabbbbcccc")).save(tmp_path / "m")
    with pytest.raises(InputError, match="takes activations and has no backbone, so it cannot be shown photos"):
        ServedModel(tmp_path / "m", device="cpu")


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


def test_changes_are_made_one_after_the_other():
    queue, running, most = WorkQueue(10), [0], [0]

    def change(place):
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.01)
        running[0] -= 1
        return place

    async def all_at_once():
        return await asyncio.gather(*(queue.change(lambda place=place: change(place)) for place in range(8)))

    assert asyncio.run(all_at_once()) == list(range(8))
    assert most[0] == 1
    with pytest.raises(ZeroDivisionError):  # an error comes back as it is
        asyncio.run(queue.read(lambda: 1 / 0))
    queue.close()


def test_questions_are_answered_while_a_change_is_made():
    queue, begun, go_on = WorkQueue(60), threading.Event(), threading.Event()

    async def run():
        change = asyncio.create_task(queue.change(lambda: begun.set() or go_on.wait(60)))
        await asyncio.to_thread(begun.wait, 60)
        answer = await queue.read(lambda: "answer")
        assert not change.done()
        go_on.set()
        return answer, await change

    assert asyncio.run(run()) == ("answer", True)
    queue.close()


def test_who_waits_too_long_is_told_and_nothing_happens():
    queue, begun, go_on, done = WorkQueue(0.05), threading.Event(), threading.Event(), []

    async def run():
        first = asyncio.create_task(queue.change(lambda: begun.set() or go_on.wait(60)))
        await asyncio.to_thread(begun.wait, 60)
        with pytest.raises(RefusedError, match="busy with other requests for 0.05 s; nothing was changed; try again"):
            await queue.change(lambda: done.append("second"))
        go_on.set()
        return await first  # it had begun, so it is waited for beyond 0.05 s

    assert asyncio.run(run())
    queue.close()
    assert done == []


def test_a_change_is_finished_though_nobody_waits_for_it():
    queue, begun, go_on, done = WorkQueue(60), threading.Event(), threading.Event(), threading.Event()

    def change():
        begun.set()
        assert go_on.wait(60)
        done.set()

    async def run():
        task = asyncio.create_task(queue.change(change))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not done.is_set()
        go_on.set()

    asyncio.run(run())
    assert done.wait(60)
    queue.close()
