"""A model on disk: the same again, whole or not at all, and a sentence for everything else."""

import json
import math
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file, save_file
from torch import nn

from masil.backbones import ModuleBackbone, create
from masil.collapse import Projection, simplex_etf
from masil.data import Framing
from masil.errors import InputError, StorageError
from masil.learner import Masil, edit_model
from masil.storage.tensors import _checksum

SCRIPT = Path(__file__).parent / "teach_forever.py"


def assert_same(again, model, images):
    """The same vectors to the bit; an engine that is opened again may round otherwise."""
    assert torch.equal(again.memory_.vectors, model.memory_.vectors)
    np.testing.assert_allclose(again.predict_proba(images), model.predict_proba(images), atol=1e-5)


@pytest.fixture
def saved(model, world, tmp_path):
    model.learn(*world.draw(range(10, 12), 3), taught_by="Ada", note="first")
    model.learn(*world.draw(range(11, 13), 3, seed=2), update=True)
    model.forget("c03")
    model.save(tmp_path / "m.masil")
    return model, tmp_path / "m.masil"


def test_a_loaded_model_is_the_same_to_the_bit_and_goes_on_like_the_first(saved, world):
    model, path = saved
    again = Masil.load(path, device="cpu")
    images, _ = world.draw(range(13), 5, seed=3)
    assert_same(again, model, images)
    assert again.sessions_ == model.sessions_
    assert again.log_ == model.log_
    assert again.base_.prior == model.base_.prior
    assert {**again.get_params(), "device": "auto"} == model.get_params()
    assert all(tensor.dtype in (torch.float32, torch.int64) for tensor in load_file(path).values())  # and no pickle
    for each in (model, again):
        each.learn(*world.draw(range(13, 16), 4, seed=5))
        each.undo()
        each.undo()
        each.learn(*world.draw(range(16, 18), 4, seed=5))
    images, _ = world.draw(range(18), 5, seed=3)
    assert_same(again, model, images)


@pytest.mark.parametrize("labels", [[3, 1, 2], ["β", "owl 🦉", "a\nb"]])
def test_any_name_comes_back(world, tmp_path, labels):
    images, _ = world.draw(range(3), 4)
    model = Masil(backbone=None, concepts=3).fit(images, [label for label in labels for _ in range(4)])
    model.save(tmp_path / "m")
    assert Masil.load(tmp_path / "m").predict(images).tolist() == model.predict(images).tolist()


def test_a_trained_embedding_with_its_frame_comes_back(world, tmp_path):
    frame = simplex_etf(4, 6, torch.Generator().manual_seed(0))
    images, labels = world.draw(range(4), 5)
    model = Masil(
        backbone=None, concepts=4, embedding=Projection(24, 6, hidden=(9,)), class_vectors=frame, alpha=math.inf
    ).fit(images, labels)
    model.save(tmp_path / "m")
    again = Masil.load(tmp_path / "m", device="cpu")
    assert_same(again, model, images)
    assert again.base_.framed
    assert again.alpha == math.inf
    assert torch.equal(again.class_vectors, frame)
    assert again.fit(images, labels).predict(images).tolist() == model.predict(images).tolist()


def test_what_is_not_a_model(tmp_path, model):
    with pytest.raises(StorageError, match="There is no model at"):
        Masil.load(tmp_path / "none.masil")
    (tmp_path / "text").write_text("not a model")
    with pytest.raises(StorageError, match="is damaged or not a model"):
        Masil.load(tmp_path / "text")
    save_file({"x": torch.ones(1)}, tmp_path / "other")
    with pytest.raises(StorageError, match="is a safetensors file but not a masil model"):
        Masil.load(tmp_path / "other")
    with pytest.raises(StorageError, match="cannot be read"):
        Masil.load(tmp_path)
    with pytest.raises(StorageError, match="is a folder; a model is one file"):
        model.save(tmp_path)
    model.save(tmp_path / "m")
    with pytest.raises(InputError, match="takes activations and has no backbone"):
        Masil.load(tmp_path / "m", backbone=create("resnet20"))


def rewritten(path, change):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    change(header["__metadata__"])
    path.unlink()
    save_file(load(raw), path, header["__metadata__"])


def test_a_model_from_before_vectors_had_names_and_balance_an_aim_is_read(saved, world):
    def age(marks):
        content = json.loads(marks["content"])
        assert content["params"].pop("class_names") is None
        assert content["params"].pop("aim") is None
        assert content["base"].pop("points") is None
        content["params"]["balance"] = 1.0
        marks["content"] = json.dumps(content, ensure_ascii=False)
        marks["checksum"] = _checksum(marks["content"], load(saved[1].read_bytes()))

    rewritten(saved[1], age)
    images, _ = world.draw(range(12), 3, seed=5)
    np.testing.assert_array_equal(Masil.load(saved[1]).predict_proba(images), saved[0].predict_proba(images))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda marks: marks.update(format="2"),
            "has format 2, but this version of masil reads format 1; update masil",
        ),
        (lambda marks: marks.update(content=marks["content"].replace("Ada", "Eve")), "damaged: its checksum is wrong"),
    ],
)
def test_a_newer_format_and_a_changed_word_are_found(saved, change, sentence):
    rewritten(saved[1], change)
    with pytest.raises(StorageError, match=sentence):
        Masil.load(saved[1])


def test_a_cut_off_file_and_a_flipped_bit_are_found(saved):
    raw = saved[1].read_bytes()
    for share in (0.0, 0.1, 0.5, 0.999):
        saved[1].write_bytes(raw[: int(share * len(raw))])
        with pytest.raises(StorageError, match="damaged"):
            Masil.load(saved[1])
    for share in (0.001, 0.3, 0.6, 0.9, 0.9999):
        flipped = bytearray(raw)
        flipped[int(share * len(raw))] ^= 4
        saved[1].write_bytes(flipped)
        with pytest.raises(StorageError, match=r"damaged|not a masil model|has format"):
            Masil.load(saved[1])


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
def test_a_kill_at_any_moment_leaves_a_whole_model(fitted, tmp_path):
    path = tmp_path / "m.masil"
    fitted.save(path)
    counts = set()
    for round_ in range(3):
        child = subprocess.Popen([sys.executable, SCRIPT, path], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(3):
            counts.add(len(Masil.load(path, device="cpu").sessions_))  # readers never see half a model
        for said in (b"saving\n", b"saved\n", b"saving\n", b"saved\n")[: 3 if round_ else 4]:
            assert child.stdout.readline() == said  # killed while it saves, or while it learns
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        model = Masil.load(path, device="cpu")
        assert [record.number for record in model.sessions_] == list(range(len(model.sessions_)))
        assert 1 <= len(model.sessions_) <= 7
        counts.add(len(model.sessions_))
    assert counts - {1}  # it was killed at work


def test_weights_that_no_package_brings_are_inside(tmp_path, backbone, pictures):
    images, labels = pictures(range(3), 4)
    model = Masil(backbone, concepts=4, crops=2, device="cpu").fit(images, labels)
    model.save(tmp_path / "m")
    again = Masil.load(tmp_path / "m", device="cpu")
    assert_same(again, model, images)
    assert again.encoder_.backbone.fingerprint() == backbone.fingerprint()
    with pytest.raises(StorageError, match="was trained with another backbone: its 'resnet20' has the fingerprint"):
        Masil.load(tmp_path / "m", backbone=create("resnet20", seed=6, framing=Framing(32, 32)))


def test_a_module_of_ones_own_is_handed_over_again(tmp_path, pictures):
    torch.manual_seed(0)
    backbone = ModuleBackbone(nn.Sequential(nn.Conv2d(3, 6, 5, stride=3), nn.ReLU()), Framing(32, 32), name="mine")
    images, labels = pictures(range(3), 4)
    model = Masil(backbone, concepts=4, crops=0, device="cpu").fit(images, labels)
    model.save(tmp_path / "m")
    with pytest.raises(InputError, match="sees through 'module:mine', a module of your own.*hand it over"):
        Masil.load(tmp_path / "m")
    again = Masil.load(tmp_path / "m", device="cpu", backbone=backbone)
    assert_same(again, model, images)


def test_sessions_taught_at_once_are_all_there(fitted, tmp_path):
    path = tmp_path / "m"
    fitted.save(path)

    def teach(name):
        for turn in range(3):
            with edit_model(path):
                model = Masil.load(path)
                rows = torch.rand(2, 24, generator=torch.Generator().manual_seed(turn))
                model.learn(rows, [f"{name} {turn}"] * 2)
                model.save(path)

    threads = [threading.Thread(target=teach, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model = Masil.load(path)
    assert {f"{name} {turn}" for name in "xyz" for turn in range(3)} <= set(model.classes_.tolist())
    assert len(model.sessions_) == 10
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def test_patience_ends_in_a_sentence(tmp_path):
    with (
        edit_model(tmp_path / "m", new=True),
        pytest.raises(StorageError, match="Another process is writing .*m, for more than 0 s now.*Nothing was changed"),
        edit_model(tmp_path / "m", new=True, patience=0.1),
    ):
        pass
    with edit_model(tmp_path / "m", new=True, patience=0):  # let go
        pass


def test_a_process_that_dies_lets_go(tmp_path):
    script = (
        "import sys, time\n"
        "from masil.learner import edit_model\n"
        "with edit_model(sys.argv[1], new=True):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(600)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, tmp_path / "m"], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match="Another process"), edit_model(tmp_path / "m", new=True, patience=0):
            pass
        holder.kill()
        holder.wait()
        with edit_model(tmp_path / "m", new=True, patience=30) as path:
            assert path == tmp_path / "m"


def test_a_link_leads_to_the_model_itself(tmp_path):
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with edit_model(tmp_path / "link") as path:
        assert path == tmp_path / "real"
        with pytest.raises(StorageError, match="Another process"), edit_model(tmp_path / "real", patience=0):
            pass


def test_what_is_not_there_is_not_locked(tmp_path):
    with (
        pytest.raises(StorageError, match="There is no model at .*none.masil"),
        edit_model(tmp_path / "x" / "none.masil"),
    ):
        pass
    with pytest.raises(StorageError, match="is a folder; a model is one file"), edit_model(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
