"""Activations are extracted once and kept in a memory-mapped file, whoever asks, and whatever dies meanwhile."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from masil.backbones.backbone import Backbone
from masil.backbones.engines import open_engine
from masil.backbones.extraction import stream
from masil.data import Framing, Images
from masil.errors import StorageError
from masil.files import cache_folder, locked, write_json
from masil.progress import bar

_LOG = logging.getLogger(__name__)


@final
class ActivationStore:
    """A folder with one .npy file per backbone (its weights), images (their content) and framing.

    While a file is written it is called .part and grows by whole rows; if the process dies, the next one that asks
    goes on where it ended. Of several processes that ask at once one extracts, and the others wait for it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = cache_folder("activations") if folder is None else Path(folder)

    def get(
        self,
        backbone: Backbone,
        images: Images,
        *,
        framing: Framing | None = None,
        flip: bool = False,
        batch: int | None = None,
        engine: str = "auto",
        device: str = "auto",
    ) -> Tensor:
        """Give the activations float32 [n d] of `images`, mapped from disk; changes to the tensor stay in memory."""
        framing = framing or backbone.framing
        shape = (len(images), backbone.features)
        if not len(images):
            return torch.empty(shape)
        what = {
            "backbone": backbone.fingerprint(),
            "images": images.fingerprint(),
            "framing": [framing.resize, framing.crop],
            "flip": flip,
        }
        file = self.folder / f"{backbone.slug}-{_key(what)}.npy"
        if (found := _open(file, shape)) is not None:
            return found
        with locked(file.with_suffix(".lock")):
            if (found := _open(file, shape)) is not None:  # another process was first
                return found
            if file.exists():
                _LOG.warning("%s is damaged; its activations are extracted again.", file)
            runner = open_engine(backbone, engine=engine, device=device, size=framing.crop)
            with _Part(file, shape) as part, bar("Extracting activations", len(images)) as advance:
                advance(part.rows)
                for _, rows in stream(runner, images, framing, start=part.rows, flip=flip, batch=batch):
                    part.append(rows)
                    advance(len(rows))
            write_json(
                file.with_suffix(".json"), {"name": backbone.name, "engine": runner.name, "shape": shape, **what}
            )
            part.finish()
        found = _open(file, shape)
        assert found is not None
        return found


@final
class _Part:
    """A .npy file under way: its header, then `rows` whole rows."""

    def __init__(self, file: Path, shape: tuple[int, int]) -> None:
        self.file = file
        self.path = file.with_suffix(".part")
        self.row_bytes = 4 * shape[1]
        self.header = _header(shape)
        self.rows = 0

    def __enter__(self) -> _Part:
        try:
            self.path.touch()
            self._file = self.path.open("r+b")
            if self._file.read(len(self.header)) == self.header:
                size = self._file.seek(0, os.SEEK_END)
                self.rows = (size - len(self.header)) // self.row_bytes
            else:
                self._file.seek(0)
                self._file.write(self.header)
            self._file.truncate(len(self.header) + self.rows * self.row_bytes)
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise self._failed(error) from error
        return self

    def append(self, rows: Tensor) -> None:
        """Write rows [n d] so that they outlive the process and the machine."""
        try:
            self._file.write(rows.contiguous().numpy().tobytes())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from error
        self.rows += len(rows)

    def finish(self) -> None:
        """Give the file its name: from now on it is whole."""
        try:
            self.path.replace(self.file)
        except OSError as error:
            raise self._failed(error) from error

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _failed(self, error: OSError) -> StorageError:
        why = "the disk is full" if error.errno == errno.ENOSPC else str(error)
        return StorageError(
            f"Activations cannot be written to {self.path}: {why}. The {self.rows} rows before are kept."
        )


def _open(file: Path, shape: tuple[int, int]) -> Tensor | None:
    """Map a finished file, if it is there and whole."""
    with suppress(OSError, ValueError, EOFError):  # ways to be absent or damaged
        rows = np.load(file, mmap_mode="c")  # private pages: the tensor may be changed, the file is not
        if rows.shape == shape and rows.dtype == np.float32:
            return torch.from_numpy(rows)
    return None


def _header(shape: tuple[int, int]) -> bytes:
    target = io.BytesIO()
    layout = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(target, layout)
    return target.getvalue()


def _key(what: object) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
