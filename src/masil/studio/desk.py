"""Who computes what, and when: questions on as many threads as there are cores, changes on one, none for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, final

from masil.hardware import usable_cores
from masil.studio.refusal import RefusedError

T = TypeVar("T")


@final
class Desk:
    """Two queues. Work that has begun is brought to its end, also if the browser that asked for it is closed."""

    def __init__(self, patience: float) -> None:
        self.patience = patience  # seconds that work may wait for its turn
        self._asking = ThreadPoolExecutor(usable_cores(), thread_name_prefix="ask")
        self._teaching = ThreadPoolExecutor(1, thread_name_prefix="teach")

    async def ask(self, work: Callable[[], T]) -> T:
        """Compute something that changes nothing."""
        return await self._turn(self._asking.submit(work), "try again")

    async def teach(self, work: Callable[[], T]) -> T:
        """Make a change, after every change that was asked for earlier."""
        return await self._turn(self._teaching.submit(work), "nothing was changed; try again")

    def close(self) -> None:
        """Finish what has begun and drop what has not."""
        for pool in (self._asking, self._teaching):
            pool.shutdown(wait=True, cancel_futures=True)

    async def _turn(self, future: Future[T], next_step: str) -> T:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self.patience)
        except TimeoutError:
            if future.cancel():
                raise RefusedError(
                    503, f"The studio was busy with other requests for {self.patience:g} s; {next_step}."
                ) from None
        return await asyncio.wrap_future(future)  # it has begun; limits on images keep it short
