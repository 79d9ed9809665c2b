"""Dataclasses and tensors through files: equal ones come back, and what does not fit is named."""

import json
from dataclasses import dataclass, field
from typing import Literal

import pytest
import torch
from safetensors.torch import save_file

from masil.errors import InputError, StorageError
from masil.storage import TensorFormat, flat, from_json, read_tensors, to_json, write_tensors


@dataclass(frozen=True)
class Part:
    size: int = 1

    def __post_init__(self):
        if self.size < 0:
            raise InputError("A part cannot be that small.")


@dataclass(frozen=True)
class Whole:
    name: str
    stages: tuple[tuple[int, float], ...] = ()
    kind: Literal["a", "b"] | None = None
    share: float = 0.5
    on: bool = True
    part: Part | None = field(default_factory=Part)
    table: dict[str, int] = field(default_factory=dict)


WHOLE = Whole("x", ((1, 2.5), (3, 4)), "b", 1, False, Part(3), {"k": 1})


@pytest.mark.parametrize("record", [WHOLE, Whole("y", part=None)])
def test_a_record_comes_back_equal(record):
    assert from_json(Whole, json.loads(json.dumps(to_json(record, 2))), "recipe", 2) == record
    assert from_json(Whole, {"name": "z"}, "recipe") == Whole("z")
    assert dict(flat(to_json(WHOLE)))["part.size"] == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"stagse": 1}, "A recipe has no 'stagse' in 'recipe'; did you mean 'stages'"),
        ({"part": {"siez": 1}}, "A recipe has no 'siez' in 'part'; did you mean 'size'"),
        ({"part": 3}, "'part' is a table of values, but this is 3"),
        ({"part": {"size": -1}}, "A part cannot be that small"),
        ({"name": 5}, "'name' cannot be 5"),
        ({"share": "x" * 100}, r"'share' cannot be 'x+\.\.\."),
        ({"share": True}, "'share' cannot be True"),
        ({"on": 1}, "'on' cannot be 1"),
        ({"kind": "c"}, "'kind' cannot be 'c'"),
        ({"stages": [[1]]}, r"'stages' cannot be \[\[1\]\]"),
        ({"stages": [[1, "a"]]}, "'stages' cannot be"),
        ({"table": {"a": "b"}}, "'table' cannot be"),
        ({"version": 3}, "The recipe has version 3 but this masil reads version 2; update masil"),
    ],
)
def test_what_does_not_fit_is_named(change, sentence):
    with pytest.raises(InputError, match=sentence):
        from_json(Whole, to_json(WHOLE, 2) | change, "recipe", 2)
    for value in (None, [], "text"):
        with pytest.raises(InputError, match="'recipe' is a table of values, but this is"):
            from_json(Whole, value, "recipe")
    with pytest.raises(InputError, match="A recipe needs 'name' in 'recipe'"):
        from_json(Whole, {}, "recipe")


FORM = TensorFormat("masil model", 1, "model", "Take it from a backup.")
TENSORS = {
    "a": torch.arange(6.0).reshape(2, 3).T, "b": torch.tensor([True]), "s": torch.tensor(1.5, dtype=torch.bfloat16),
}  # fmt: skip


def test_tensors_come_back_equal_whoever_wrote_them(tmp_path):
    shared = torch.arange(3)
    write_tensors(tmp_path / "new", FORM, {"é": [1]}, {**TENSORS, "c": shared, "d": shared[1:]})
    save_file(
        {"a": TENSORS["a"].contiguous()}, tmp_path / "old", {"format": "masil model 1", "session": '{"epoch": 3}'}
    )
    content, tensors = read_tensors(tmp_path / "new", FORM)
    assert content == {"é": [1]}
    assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())
    assert read_tensors(tmp_path / "old", FORM, older="session")[0] == {"epoch": 3}


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda raw: raw[:-3], r"damaged or not a model \(.*\)\. Take it"),
        (lambda raw: raw[:-3] + b"abc", r"The model .* is damaged: its checksum is wrong\. Take it from a backup"),
        (lambda raw: raw.replace(b'"format":"1"', b'"format":"7"'), "has format 7, but .* reads format 1; update"),
        (lambda raw: raw.replace(b"masil model", b"other thing"), "a safetensors file but not a masil model"),
    ],
)
def test_a_damaged_file_is_a_sentence(tmp_path, damage, sentence):
    write_tensors(tmp_path / "file", FORM, [], TENSORS)
    (tmp_path / "file").write_bytes(damage((tmp_path / "file").read_bytes()))
    with pytest.raises(StorageError, match=sentence):
        read_tensors(tmp_path / "file", FORM)
    with pytest.raises(StorageError, match="There is no model at"):
        read_tensors(tmp_path / "absent", FORM)
    with pytest.raises(StorageError, match=r"The model .* cannot be read \(Is a directory\)"):
        read_tensors(tmp_path, FORM)
