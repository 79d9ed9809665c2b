"""Activations are extracted once and kept in a memory-mapped file, whoever asks, and whatever dies meanwhile."""

import errno
import hashlib
import io
import json
import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from masil.backbones.backbone import Backbone
from masil.backbones.engine import open_engine
from masil.backbones.extract import PLAIN, View, stream
from masil.backbones.module import SeveralBackbones
from masil.data import Framing, Images
from masil.errors import StorageError
from masil.progress import bar
from masil.storage import cache_folder, locked, write_json

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
        self, backbone: Backbone, images: Images, *, framing: Framing | None = None, view: View = PLAIN,
        batch: int | None = None, engine: str = "auto", device: str = "auto",
    ) -> Tensor:  # fmt: skip
        """Give the activations float32 [n d] of `images`, mapped from disk; changes to the tensor stay in memory.

        Several backbones that see the same square are extracted one by one, so that each is found again by itself;
        their activations side by side are in memory.
        """
        framing = framing or backbone.framing
        shape = (len(images), backbone.features)
        if not len(images):
            return torch.empty(shape)
        if isinstance(backbone, SeveralBackbones) and all(part.framing == framing for part in backbone.members()):
            parts = (
                self.get(part, images, framing=framing, view=view, batch=batch, engine=engine, device=device)
                for part in backbone.members()
            )
            return torch.cat(list(parts), 1)
        what = {
            "backbone": backbone.fingerprint(),
            "images": images.fingerprint(),
            "framing": [framing.resize, framing.crop],
            "flip": view.mirrored,
        }
        if view.right or view.down:
            what["moved"] = [view.right, view.down]
        key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
        file = self.folder / f"{backbone.slug}-{key}.npy"
        if (stored := _open(file, shape)) is not None:
            return stored
        with locked(file.with_suffix(".lock")):
            if (stored := _open(file, shape)) is not None:  # another process was first
                return stored
            if file.exists():
                _LOG.warning("%s is damaged; its activations are extracted again.", file)
            runner = open_engine(backbone, engine=engine, device=device, size=framing.crop)
            with closing(_Part(file, shape)) as part, bar("Extracting activations", len(images)) as advance:
                advance(part.rows)
                for _, rows in stream(runner, images, framing, start=part.rows, view=view, batch=batch):
                    part.append(rows)
                    advance(len(rows))
            facts = {"name": backbone.name, "engine": runner.name, "shape": shape, **what}
            write_json(file.with_suffix(".json"), facts)
            part.finish()
        stored = _open(file, shape)
        assert stored is not None
        return stored


@final
class _Part:
    """A .npy file that is being written: its header, then `rows` whole rows."""

    def __init__(self, file: Path, shape: tuple[int, int]) -> None:
        self.file, self.path, self.rows = file, file.with_suffix(".part"), 0
        header, row_bytes = _header(shape), 4 * shape[1]
        with self._refusals():
            self.path.touch()
            self._target = self.path.open("r+b")
            if self._target.read(len(header)) == header:
                self.rows = (self._target.seek(0, os.SEEK_END) - len(header)) // row_bytes
            else:
                self._target.seek(0)
                self._target.write(header)
            self._target.truncate(len(header) + self.rows * row_bytes)
            self._target.seek(0, os.SEEK_END)

    def append(self, rows: Tensor) -> None:
        """Write rows [n d] so that they outlive the process and the machine."""
        with self._refusals():
            self._target.write(rows.contiguous().numpy().tobytes())
            self._target.flush()
            os.fsync(self._target.fileno())
        self.rows += len(rows)

    def close(self) -> None:
        """Stop writing."""
        self._target.close()

    def finish(self) -> None:
        """Give the file its name: from now on it is whole."""
        with self._refusals():
            self.path.replace(self.file)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn what the system refuses inside this block into a sentence."""
        try:
            yield
        except OSError as error:
            why = "the disk is full" if error.errno == errno.ENOSPC else str(error)
            raise StorageError(
                f"Activations cannot be written to {self.path}: {why}. The {self.rows} rows before are kept."
            ) from error


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
