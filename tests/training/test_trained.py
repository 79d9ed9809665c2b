import dataclasses
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from masil.errors import StorageError
from masil.training.trained import FILE, Checkpoint, check_fits, fill, read_checkpoint, write_checkpoint

CONFIG = {"name": "resnet20", "width": 0.5, "framing": [16, 16]}


@pytest.fixture
def checkpoint(tiny):
    weight = torch.rand(2, 3, 3, 3, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    return Checkpoint(
        recipe=tiny(),
        backbone=CONFIG,
        classes=3,
        data="abc",
        engine={"device": "cpu"},
        epoch=2,
        step=5,
        tensors={"network.a": weight, "network.b": torch.tensor(7), "optimiser.network": torch.ones(2)},
        history=[{"epoch": 1, "loss": 0.1 + 0.2}],
        running={"loss": 1 / 3},
        averaged=4,
    )


def test_it_comes_back_bit_for_bit(checkpoint, tmp_path):
    write_checkpoint(tmp_path, checkpoint)
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert found.tensors.keys() == checkpoint.tensors.keys()
    for name, value in checkpoint.tensors.items():
        assert torch.equal(found.tensors[name], value)
    assert dataclasses.replace(found, tensors={}) == dataclasses.replace(checkpoint, tensors={})
    assert set(found.part("network")) == {"a", "b"}
    assert not found.finished
    assert dataclasses.replace(found, epoch=4).finished
    assert found.finite()
    for value in ("nan", "inf"):
        tensors = {**found.tensors, "network.c": torch.tensor([1.0, float(value)])}
        assert not dataclasses.replace(found, tensors=tensors).finite()


def test_names_are_kept_and_one_from_before_has_none(checkpoint, tmp_path):
    path = write_checkpoint(tmp_path, dataclasses.replace(checkpoint, names=("class 10", "class 2", "é")))
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert found.names == ("class 10", "class 2", "é")
    with safe_open(path, "pt") as file:
        values = json.loads(file.metadata()["content"])
    del values["names"]
    save_file({"network.a": torch.ones(1)}, path, {"format": "masil base session 1", "session": json.dumps(values)})
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert found.names is None
    assert torch.equal(found.tensors["network.a"], torch.ones(1))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_one_is_said_and_left(checkpoint, tmp_path, share):
    path = write_checkpoint(tmp_path, checkpoint)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(
        StorageError,
        match=r"checkpoint\.safetensors is damaged or not a checkpoint .* Move it away, or choose another folder, to",
    ):
        read_checkpoint(tmp_path)
    assert path.exists()


def test_no_file_is_no_checkpoint_and_another_kind_of_file_is_said(tmp_path):
    assert read_checkpoint(tmp_path) is None
    save_file({"a": torch.ones(1)}, tmp_path / FILE)
    with pytest.raises(StorageError, match="is a safetensors file but not a masil base session"):
        read_checkpoint(tmp_path)
    save_file({"a": torch.ones(1)}, tmp_path / FILE, {"format": "masil base session 1", "session": "{}"})
    with pytest.raises(StorageError, match="description that cannot be read"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"backbone": {**CONFIG, "name": "resnet12"}},
         r"another backbone: name resnet20, width 0\.5 there, name resnet12, width 0\.5 here"),
        ({"recipe": {"batch": 8}}, r"another recipe \(batch: 8 here, 16 there\).* Move it away"),
        ({"data": "xyz"}, "trained on other images"),
        ({"names": ("a", "x", "c")}, r"class 1 is called 'b', here 'x'\. Move it away, or choose another folder"),
        ({}, None),
        ({"names": None}, None),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(checkpoint, tiny, changes, sentence):
    saved = dataclasses.replace(checkpoint, names=("a", "b", "c"))
    own = dataclasses.replace(saved, **changes | {"recipe": tiny(**changes.get("recipe", {}))})
    with nullcontext() if sentence is None else pytest.raises(StorageError, match=sentence):
        check_fits(saved, own, Path(FILE))


def test_weights_of_another_shape_are_said_before_any_is_loaded(tmp_path):
    layer = nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    with pytest.raises(StorageError, match="bias is None there"):
        fill(layer, {"weight": torch.zeros(2, 2)}, tmp_path)
    with pytest.raises(StorageError, match=r"weight is torch\.Size\(\[3, 2\]\) there"):
        fill(layer, {"weight": torch.zeros(3, 2), "bias": torch.zeros(2)}, tmp_path)
    assert torch.equal(layer.weight, before)


def test_a_failed_write_leaves_the_old_one(checkpoint, tmp_path, monkeypatch):
    write_checkpoint(tmp_path, checkpoint)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="disk is full"):
        write_checkpoint(tmp_path, dataclasses.replace(checkpoint, epoch=3))
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert found.epoch == 2
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
