"""A request is read whole or not at all, within limits of size and time; one that is cut off has changed nothing."""

import asyncio
import json

import pytest
from prometheus_client import generate_latest

from masil.studio.door import Door
from masil.studio.guard import Guard
from masil.studio.limits import Limits
from masil.studio.metrics import Metrics


class Inside:
    """An application that remembers what came through the door."""

    def __init__(self, wait: float = 0):
        self.seen: list[bytes] = []
        self.wait = wait

    async def __call__(self, scope, receive, send):
        message = await receive()
        assert not message["more_body"]
        self.seen.append(message["body"])
        await asyncio.sleep(self.wait)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


def knock(door, parts, headers=(), pause=0.0):
    """Send a request in parts, and give the status and the sentence of the answer; None means the client has gone."""
    sent = []

    async def run():
        left = list(parts)

        async def receive():
            await asyncio.sleep(pause)
            part = left.pop(0) if left else None
            if part is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": part, "more_body": bool(left)}

        async def send(message):
            sent.append(message)

        head = [(b"host", b"127.0.0.1"), *headers]
        await door({"type": "http", "method": "POST", "path": "/api/learn", "headers": head}, receive, send)

    asyncio.run(run())
    if not sent:
        return None
    return sent[0]["status"], json.loads(sent[1]["body"]).get("error")


def door(**limits):
    inside = Inside()
    return Door(inside, Guard(), Limits(**limits), Metrics()), inside


def test_parts_become_one():
    gate, inside = door()
    assert knock(gate, [b"ab", b"", b"cd"]) == (200, None)
    assert inside.seen == [b"abcd"]
    assert gate._held == 0


@pytest.mark.parametrize("announced", [True, False])
def test_too_large_is_refused_whether_it_says_so_or_not(announced):
    gate, inside = door(request_bytes=1_000_000)
    headers = [(b"content-length", b"1000001")] if announced else []
    status, sentence = knock(gate, [b"x" * 600_000, b"x" * 400_001], headers)
    assert (status, inside.seen, gate._held) == (413, [], 0)
    assert sentence == "The request is larger than the 1 MB that are taken at once."


def test_a_length_that_is_a_lie_does_not_help():
    gate, inside = door(request_bytes=10)
    for length in (b"3", b"-5", b"nonsense", "²".encode("latin-1")):
        assert knock(gate, [b"x" * 11], [(b"content-length", length)])[0] == 413
    assert inside.seen == []


def test_one_that_trickles_in_is_not_waited_for():
    gate, inside = door(seconds=0.05)
    assert knock(gate, [b"x"] * 100, pause=0.02) == (408, "The request was not complete after 0.05 s.")
    assert inside.seen == []


def test_a_browser_that_closes_half_way_has_changed_nothing():
    gate, inside = door()
    assert knock(gate, [b"half", None]) is None
    assert (inside.seen, gate._held) == ([], 0)
    assert 'status="499"' in generate_latest(gate.metrics.registry).decode()


def test_all_requests_together_have_a_limit():
    inside = Inside(wait=0.2)
    gate = Door(inside, Guard(), Limits(held_bytes=100), Metrics())
    answers = []

    async def one():
        async def receive():
            return {"type": "http.request", "body": b"x" * 60, "more_body": False}

        async def send(message):
            answers.append(message)

        scope = {"type": "http", "method": "POST", "path": "/api/learn", "headers": [(b"host", b"127.0.0.1")]}
        await gate(scope, receive, send)

    async def both():
        await asyncio.gather(one(), one())

    asyncio.run(both())
    assert sorted(answer["status"] for answer in answers if "status" in answer) == [200, 503]
    assert gate._held == 0


def test_a_websocket_is_not_answered():
    gate, inside = door()
    asyncio.run(gate({"type": "websocket"}, None, None))
    assert inside.seen == []
