import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from masil.concepts.bank_file import read_bank, write_bank
from masil.concepts.bank_record import BankRecord, Examples
from masil.errors import StorageError

RECORD = BankRecord(rows=10, seed=3, iterations=7, converged=False, objective=0.1, backbone="ab", crops=10, side=18)


def saved(path: Path) -> Path:
    write_bank(path, torch.rand(3, 4), RECORD, None)
    return path


def test_everything_comes_back(tmp_path: Path) -> None:
    concepts = torch.rand(3, 4, dtype=torch.float64)
    examples = Examples(torch.arange(6).reshape(3, 2), torch.ones(3, 2, 4, dtype=torch.int64), torch.rand(3, 2))
    write_bank(tmp_path / "new" / "bank.safetensors", concepts.T.contiguous().T, RECORD, examples)
    again, record, shown = read_bank(tmp_path / "new" / "bank.safetensors")
    assert torch.equal(again, concepts)
    assert record == RECORD
    assert shown is not None
    assert torch.equal(shown.images, examples.images)
    assert torch.equal(shown.boxes, examples.boxes)
    assert torch.equal(shown.coefficients, examples.coefficients)


def test_the_same_bank_is_the_same_bytes(tmp_path: Path) -> None:
    concepts = torch.rand(3, 4)
    for name in ("a", "b"):
        write_bank(tmp_path / name, concepts, RECORD, None)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="There is no concept bank at .*nowhere"):
        read_bank(tmp_path / "nowhere")
    path = saved(tmp_path / "bank")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StorageError, match="bank is damaged or not a safetensors file"):
        read_bank(path)
    path.write_text("hello")
    with pytest.raises(StorageError, match="bank is damaged or not a safetensors file"):
        read_bank(path)


HEADER = {"format": "masil concept bank", "version": 1, "record": {}}


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({}, "is a safetensors file but not a concept bank"),
        ({"masil": "{"}, "is a safetensors file but not a concept bank"),
        ({"masil": "3"}, "is a safetensors file but not a concept bank"),
        ({"masil": json.dumps({"format": "masil model"})}, "is a safetensors file but not a concept bank"),
        (
            {"masil": json.dumps(HEADER | {"version": 2})},
            "has format 2, but this version of masil reads format 1; update masil",
        ),
        ({"masil": json.dumps(HEADER)}, "is damaged: a part of it is missing"),
        ({"masil": json.dumps(HEADER | {"record": {"rows": 1}})}, "is damaged: a part of it is missing"),
        ({"masil": json.dumps({"format": "masil concept bank", "version": 1})}, "is damaged: .* missing"),
    ],
)
def test_other_files_and_versions_are_refused(tmp_path: Path, metadata: dict[str, str], sentence: str) -> None:
    save_file({"concepts": torch.rand(2, 3)}, tmp_path / "bank", metadata=metadata)
    with pytest.raises(StorageError, match=sentence):
        read_bank(tmp_path / "bank")


def test_a_bank_without_concepts_is_damaged(tmp_path: Path) -> None:
    header = json.dumps(HEADER | {"record": vars(RECORD)})
    save_file({"other": torch.rand(2, 3)}, tmp_path / "bank", metadata={"masil": header})
    with pytest.raises(StorageError, match=r"is damaged: a part of it is missing \('concepts'\)"):
        read_bank(tmp_path / "bank")
