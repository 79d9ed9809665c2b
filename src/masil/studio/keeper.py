"""One model that many ask and few change: a change is made on a copy, saved, and only then shown to anyone."""

from __future__ import annotations

import copy
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, final

import numpy as np

from masil.data import Framing
from masil.errors import InputError, MasilError
from masil.learner import Masil, editing

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_Stamp = tuple[int, int, int]


@final
class Keeper:
    """Keeps the model in `path` and in memory the same.

    Readers take `model` once and use that object throughout: it is never changed, only replaced, so no answer mixes
    two models. Changes wait for each other, here and in other programs that hold the file (`masil.learner.editing`). If
    one of those has replaced it, it is read again first, so that nothing which was taught there is lost.
    """

    def __init__(self, path: Path, *, device: str = "auto") -> None:
        self.path = path
        self.device = device
        self._lock = threading.Lock()
        self._stamp = _stamp(path)
        self._model = Masil.load(path, device=device)
        self.framing = _framing(self._model, path)
        # Opens the engine, so that the first person to ask does not wait for it.
        self._model.predict_proba(np.zeros((1, self.framing.crop, self.framing.crop, 3), np.uint8))

    @property
    def model(self) -> Masil:
        """The newest model; not to be changed."""
        if self._replaced() and self._lock.acquire(blocking=False):
            try:
                self._reload()
            except MasilError as error:
                _LOG.warning("The model file has changed but is not served: %s", error)
            finally:
                self._lock.release()
        return self._model

    def change(self, step: Callable[[Masil], T]) -> tuple[Masil, T]:
        """Let `step` change a copy, save it, and serve it from now on; give it with what `step` gave.

        If `step` or saving fails, or the process dies, the model on disk and the one served are what they were.
        """
        with self._lock, editing(self.path) as file:
            if self._replaced():
                self._reload()
            # Shallow: whatever a learner learns is replaced as a whole, never written into.
            changed = copy.copy(self._model)
            result = step(changed)
            changed.save(file)
            self._stamp, self._model = _stamp(self.path), changed
            return changed, result

    def _replaced(self) -> bool:
        """Say whether another program has written the file; one that was deleted has not been."""
        return (stamp := _stamp(self.path)) is not None and stamp != self._stamp

    def _reload(self) -> None:
        stamp = _stamp(self.path)
        model = Masil.load(self.path, device=self.device)
        old, new = self._model.encoder_.backbone, model.encoder_.backbone
        if old is None or new is None or old.fingerprint() != new.fingerprint():
            raise InputError(f"{self.path.name} now has another backbone; start `masil serve` again to use it.")
        model.encoder_ = self._model.encoder_  # with its engine, which is open already
        self._stamp, self._model = stamp, model


def _framing(model: Masil, path: Path) -> Framing:
    if model.encoder_.backbone is None:
        raise InputError(f"The model {path} takes activations and has no backbone, so it cannot be shown photos.")
    return model.encoder_.backbone.framing


def _stamp(path: Path) -> _Stamp | None:
    """Tell one file of this name from the next."""
    try:
        found = os.stat(path)  # noqa: PTH116  once per request
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
