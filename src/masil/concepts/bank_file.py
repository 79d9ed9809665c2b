"""A concept bank as one safetensors file: tensors as they are, and the record as JSON among the file's metadata."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from masil.concepts.bank_record import BankRecord, Examples
from masil.errors import StorageError
from masil.files import write_bytes

FORMAT, VERSION = "masil concept bank", 1


def write_bank(path: Path, concepts: Tensor, record: BankRecord, examples: Examples | None) -> None:
    """Write concepts, record and examples to `path`, atomically."""
    tensors = {"concepts": concepts}
    if examples is not None:
        tensors |= {f"examples.{name}": value for name, value in vars(examples).items()}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    header = {"format": FORMAT, "version": VERSION, "record": asdict(record)}
    # One key, as the order of several is not fixed, and the same bank is to be the same bytes.
    write_bytes(Path(path), save(tensors, metadata={"masil": json.dumps(header, sort_keys=True)}))


def read_bank(path: Path) -> tuple[Tensor, BankRecord, Examples | None]:
    """Read what `write_bank` has written, or say in a sentence why it cannot be read."""
    if not Path(path).is_file():
        raise StorageError(f"There is no concept bank at {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            header = _header((file.metadata() or {}).get("masil", ""))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise StorageError(f"{path} is damaged or not a safetensors file ({error}).") from error
    if header.get("format") != FORMAT:
        raise StorageError(f"{path} is a safetensors file but not a concept bank.")
    if (version := header.get("version")) != VERSION:
        raise StorageError(
            f"The concept bank {path} has format {version}, but this version of masil reads format {VERSION}; "
            "update masil, or fit the bank again."
        )
    try:
        record = BankRecord(**header["record"])
        parts = {name.removeprefix("examples."): value for name, value in tensors.items() if "." in name}
        return tensors["concepts"], record, Examples(**parts) if parts else None
    except (KeyError, TypeError) as error:
        raise StorageError(f"The concept bank {path} is damaged: a part of it is missing ({error}).") from error


def _header(text: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}
