"""The model that is served, and the threads that work on it.

A change is made on a copy, saved, and only then shown to anyone. Predictions run in parallel, changes one at a time.
"""

import asyncio
import copy
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, final

import numpy as np

from masil.errors import InputError, MasilError
from masil.hardware import usable_cores
from masil.learner import Masil, edit_model
from masil.studio.request_guard import RefusedError

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_Stamp = tuple[int, int, int]


@final
class ServedModel:
    """A model file and the same model in memory.

    Readers take `model` once and use that object throughout: it is never changed, only replaced, so no answer mixes two
    models. Changes wait for each other, here and in other programs that lock the file (`edit_model`). If one of those
    has replaced it, it is read again first, so that nothing which was taught there is lost.
    """

    def __init__(self, path: Path, *, device: str = "auto") -> None:
        self.path = path
        self.device = device
        self._lock = threading.Lock()
        self._stamp = _stamp(path)
        self._model = Masil.load(path, device=device)
        if self._model.encoder_.backbone is None:
            raise InputError(f"The model {path} takes activations and has no backbone, so it cannot be shown photos.")
        self.framing = self._model.encoder_.backbone.framing
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
        with self._lock, edit_model(self.path) as file:
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


def _stamp(path: Path) -> _Stamp | None:
    """Tell one file of this name from the next."""
    try:
        status = os.stat(path)  # noqa: PTH116  once per request
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@final
class WorkQueue:
    """Runs work in turn. Work that waits longer than `patience` seconds is refused; what has begun is finished."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._readers = ThreadPoolExecutor(usable_cores(), thread_name_prefix="read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="change")

    async def read(self, work: Callable[[], T]) -> T:
        """Compute something that changes nothing."""
        return await self._wait(self._readers.submit(work), "try again")

    async def change(self, work: Callable[[], T]) -> T:
        """Make a change, after every change that was asked for earlier."""
        return await self._wait(self._writer.submit(work), "nothing was changed; try again")

    def close(self) -> None:
        """Finish what has begun and drop what has not."""
        for pool in (self._readers, self._writer):
            pool.shutdown(wait=True, cancel_futures=True)

    async def _wait(self, future: Future[T], next_step: str) -> T:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self.patience)
        except TimeoutError:
            if future.cancel():
                raise RefusedError(
                    503, f"The studio was busy with other requests for {self.patience:g} s; {next_step}."
                ) from None
        return await asyncio.wrap_future(future)  # it has begun; limits on images keep it short
