"""Questions and changes each in their queue; none waits for ever, and what has begun is finished."""

import asyncio
import threading
import time

import pytest

from masil.studio.desk import Desk
from masil.studio.refusal import RefusedError


def test_changes_are_made_one_after_the_other():
    desk, running, most = Desk(10), [0], [0]

    def change(place):
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.01)
        running[0] -= 1
        return place

    async def all_at_once():
        return await asyncio.gather(*(desk.teach(lambda place=place: change(place)) for place in range(8)))

    assert asyncio.run(all_at_once()) == list(range(8))
    assert most[0] == 1
    desk.close()


def test_questions_are_answered_while_a_change_is_made():
    desk, begun, go_on = Desk(60), threading.Event(), threading.Event()

    async def run():
        change = asyncio.create_task(desk.teach(lambda: begun.set() or go_on.wait(60)))
        await asyncio.to_thread(begun.wait, 60)
        answer = await desk.ask(lambda: "answer")
        assert not change.done()
        go_on.set()
        return answer, await change

    assert asyncio.run(run()) == ("answer", True)
    desk.close()


def test_who_waits_too_long_is_told_and_nothing_happens():
    desk, begun, go_on, done = Desk(0.05), threading.Event(), threading.Event(), []

    async def run():
        first = asyncio.create_task(desk.teach(lambda: begun.set() or go_on.wait(60)))
        await asyncio.to_thread(begun.wait, 60)
        with pytest.raises(RefusedError, match="busy with other requests for 0.05 s; nothing was changed; try again"):
            await desk.teach(lambda: done.append("second"))
        go_on.set()
        return await first  # it had begun, so it is waited for beyond 0.05 s

    assert asyncio.run(run())
    desk.close()
    assert done == []


def test_a_change_is_finished_though_nobody_waits_for_it():
    desk, begun, go_on, done = Desk(60), threading.Event(), threading.Event(), threading.Event()

    def change():
        begun.set()
        assert go_on.wait(60)
        done.set()

    async def run():
        task = asyncio.create_task(desk.teach(change))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not done.is_set()
        go_on.set()

    asyncio.run(run())
    assert done.wait(60)
    desk.close()


def test_an_error_comes_back_as_it_is():
    desk = Desk(10)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(desk.ask(lambda: 1 / 0))
    desk.close()
