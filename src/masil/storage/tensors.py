"""Named tensors and plain values in one safetensors file, with kind, version and checksum. No pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from masil.errors import StorageError
from masil.storage.atomic import write_bytes

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True)
class TensorFormat:
    """A kind of tensor file: the name and version that are written into it, and how sentences speak of it."""

    kind: str  # "masil model"
    version: int
    title: str  # "model"
    remedy: str  # what to do if such a file is damaged: "Take it from a backup."


def write_tensors(path: Path, form: TensorFormat, content: Any, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors and plain values to `path`; until the file is whole and on the disk, the one before it stays."""
    from safetensors.torch import save  # imports torch, which reading other files of masil's must not

    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    # Cloned: a file holds every tensor by itself, even where two are the same in memory.
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    marks = {"kind": form.kind, "format": str(form.version), "content": text, "checksum": _checksum(text, copies)}
    write_bytes(path, save(copies, metadata=marks))


def read_tensors(path: Path, form: TensorFormat, *, older: str | None = None) -> tuple[Any, dict[str, Tensor]]:
    """Read what `write_tensors` wrote, or say in a sentence why it cannot be read.

    `older` names the entry with the plain values in files from before there were checksums, which say "kind version"
    in one entry.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    title = f"The {form.title} {path}"
    try:
        raw = path.read_bytes()
        tensors = load(raw)
        marks = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")]).get("__metadata__", {})
    except FileNotFoundError as error:
        raise StorageError(f"There is no {form.title} at {path}.") from error
    except OSError as error:
        raise StorageError(f"{title} cannot be read ({error.strerror}).") from error
    except (SafetensorError, ValueError) as error:
        raise StorageError(f"{path} is damaged or not a {form.title} ({error}). {form.remedy}") from error
    if older in marks and marks.get("format") == f"{form.kind} {form.version}":
        return json.loads(marks[older]), tensors
    if marks.get("kind") != form.kind:
        raise StorageError(f"{path} is a safetensors file but not a {form.kind}.")
    if (version := marks.get("format", "?")) != str(form.version):
        raise StorageError(
            f"{title} has format {version}, but this version of masil reads format {form.version}; update masil."
        )
    if marks.get("checksum") != _checksum(marks.get("content", ""), tensors):
        raise StorageError(f"{title} is damaged: its checksum is wrong. {form.remedy}")
    return json.loads(marks["content"]), tensors


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    import torch

    state = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        state.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        state.update(value.flatten().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
