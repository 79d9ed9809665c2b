"""Who is let in, and within which limits; a request that is cut off has changed nothing."""

import asyncio
import itertools
import json

import pytest
from prometheus_client import generate_latest

from masil.studio.metrics import Metrics
from masil.studio.request_guard import SECURITY_HEADERS, AccessPolicy, Limits, RefusedError, RequestGuard, is_loopback


class Inside:
    """An application that remembers what came through the guard."""

    def __init__(self, wait):
        self.seen: list[bytes] = []
        self.wait = wait

    async def __call__(self, scope, receive, send):
        message = await receive()
        assert not message["more_body"]
        self.seen.append(message["body"])
        await asyncio.sleep(self.wait)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


def request(guard, parts, headers=(), pause=0.0):
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
        await guard({"type": "http", "method": "POST", "path": "/api/learn", "headers": head}, receive, send)

    asyncio.run(run())
    if not sent:
        return None
    return sent[0]["status"], json.loads(sent[1]["body"]).get("error")


def guarded(wait=0, **limits):
    inside = Inside(wait)
    return RequestGuard(inside, AccessPolicy(), Limits(**limits), Metrics()), inside


def test_parts_become_one_and_a_websocket_is_not_answered():
    guard, inside = guarded()
    assert request(guard, [b"ab", b"", b"cd"]) == (200, None)
    asyncio.run(guard({"type": "websocket"}, None, None))
    assert inside.seen == [b"abcd"]
    assert guard._held == 0


@pytest.mark.parametrize("announced", [True, False])
def test_too_large_is_refused_whether_it_says_so_or_not(announced):
    guard, inside = guarded(request_bytes=1_000_000)
    headers = [(b"content-length", b"1000001")] if announced else []
    status, sentence = request(guard, [b"x" * 600_000, b"x" * 400_001], headers)
    assert (status, inside.seen, guard._held) == (413, [], 0)
    assert sentence == "The request is larger than the 1 MB that are taken at once."


def test_a_length_that_is_a_lie_does_not_help():
    guard, inside = guarded(request_bytes=10)
    for length in (b"3", b"-5", b"nonsense", "²".encode("latin-1")):
        assert request(guard, [b"x" * 11], [(b"content-length", length)])[0] == 413
    assert inside.seen == []


def test_one_that_trickles_in_is_not_waited_for():
    guard, inside = guarded(seconds=0.05)
    assert request(guard, [b"x"] * 100, pause=0.02) == (408, "The request was not complete after 0.05 s.")
    assert inside.seen == []


def test_a_browser_that_closes_half_way_has_changed_nothing():
    guard, inside = guarded()
    assert request(guard, [b"half", None]) is None
    assert (inside.seen, guard._held) == ([], 0)
    assert 'status="499"' in generate_latest(guard.metrics.registry).decode()


def test_all_requests_together_have_a_limit():
    guard, _ = guarded(wait=0.2, held_bytes=100)
    answers = []

    async def one():
        async def receive():
            return {"type": "http.request", "body": b"x" * 60, "more_body": False}

        async def send(message):
            answers.append(message)

        scope = {"type": "http", "method": "POST", "path": "/api/learn", "headers": [(b"host", b"127.0.0.1")]}
        await guard(scope, receive, send)

    async def both():
        await asyncio.gather(one(), one())

    asyncio.run(both())
    assert sorted(answer["status"] for answer in answers if "status" in answer) == [200, 503]
    assert guard._held == 0


OWN = "127.0.0.1"


def status(access, method="POST", path="/api/learn", **headers):
    try:
        access.check(method, path, {"host": OWN, **{name.replace("_", "-"): value for name, value in headers.items()}})
    except RefusedError as refusal:
        return refusal.status
    return 200


@pytest.mark.parametrize(
    ("expected", "hosts"),
    [(200, ["127.0.0.1", "127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "192.168.0.7:8000",
            "studio.lan:80"]),
     (421, ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "evil.example@127.0.0.1",
            "127.0.0.1:8000/x", "127.0.0.1:port", "[::1", ""])],
)  # fmt: skip
def test_a_rebound_name_is_refused(expected, hosts):
    for host, path in itertools.product(hosts, ("/api/info", "/", "/static/studio.js")):
        assert status(AccessPolicy(names=frozenset({"studio.lan"})), "GET", path, host=host) == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1", 200),
        ("https://127.0.0.1", 200),
        ("http://127.0.0.1:3000", 403),
        ("http://localhost", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_a_page_of_another_origin_cannot_teach(origin, expected):
    for method in ("POST", "DELETE", "PUT", "OPTIONS"):
        assert status(AccessPolicy(), method, origin=origin) == expected


@pytest.mark.parametrize(
    ("site", "expected"), [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("", 403)]
)
def test_a_page_of_another_origin_cannot_read(site, expected):
    for method in ("GET", "POST"):
        assert status(AccessPolicy(), method, "/api/info", sec_fetch_site=site) == expected


@pytest.mark.parametrize(
    ("expected", "headers"),
    [(200, ["Bearer sesame-sesame", "bearer  sesame-sesame"]),
     (401, ["Bearer sesame", "Bearer sesame-sesame2", "Bearer sésame", "Basic sesame-sesame", "sesame-sesame", ""])],
)  # fmt: skip
def test_a_token_opens(expected, headers):
    access = AccessPolicy(token="sesame-sesame")
    for header in headers:
        for method, path in (("POST", "/api/learn"), ("GET", "/api/info"), ("GET", "/api/metrics")):
            assert status(access, method, path, authorization=header) == expected
        for path in ("/", "/static/studio.js", "/api/health", "/api/openapi.json"):
            assert status(access, "GET", path, authorization=header) == 200


def test_which_addresses_are_this_machine_alone():
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        assert not is_loopback(host)


def test_every_answer_has_security_headers(client, files):
    answers = [
        client.get("/"),
        client.get("/static/studio.js"),
        client.get("/api/info"),
        client.get("/api/nothing"),
        client.post("/api/predict", files=files(1)),
        client.post("/api/predict"),
        client.post("/api/learn", headers={"origin": "http://evil.example"}),
        client.get("/", headers={"host": "evil.example"}),
    ]
    for answer in answers:
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert "'unsafe" not in SECURITY_HEADERS["content-security-policy"]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404, 200, 422, 403, 421]


def test_nothing_is_taught_from_elsewhere(client, files, model_file):
    before, evil = model_file.read_bytes(), {"origin": "http://evil.example"}
    answer = client.options("/api/learn", headers={**evil, "access-control-request-method": "POST"})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    answer = client.post("/api/learn", files=files(7, 3), data={"name": "new"}, headers=evil)
    assert answer.status_code == 403
    assert answer.json()["error"].startswith("The request comes from a page of another origin")
    assert model_file.read_bytes() == before


def test_a_studio_with_a_token(studio, files):
    client = studio(access=AccessPolicy(token="sesame-sesame"))
    refused = client.post("/api/predict", files=files(1))
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "This studio needs its token" in refused.json()["error"]
    client.headers["authorization"] = "Bearer sesame-sesame"
    assert client.post("/api/predict", files=files(1)).status_code == 200
    document = client.get("/api/openapi.json").json()
    assert document["paths"]["/api/learn"]["post"]["security"] == [{"HTTPBearer": []}]
    assert "security" not in document["paths"]["/api/health"]["get"]
