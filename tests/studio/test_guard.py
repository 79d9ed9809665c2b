"""Pages of other origins, rebound names and strangers stay outside; what goes out is armoured."""

import pytest

from masil.studio.guard import HEADERS, Guard, is_loopback
from masil.studio.refusal import RefusedError

OWN = "127.0.0.1"


def status(guard: Guard, method: str = "POST", path: str = "/api/learn", **headers: str) -> int:
    try:
        guard.check(method, path, {"host": OWN, **{name.replace("_", "-"): value for name, value in headers.items()}})
    except RefusedError as refusal:
        return refusal.status
    return 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8000", 200),
        ("localhost:8000", 200),
        ("LOCALHOST", 200),
        ("[::1]:8000", 200),
        ("192.168.0.7:8000", 200),
        ("studio.lan:80", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:8000", 421),
        ("evil.example@127.0.0.1", 421),
        ("127.0.0.1:8000/x", 421),
        ("127.0.0.1:port", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_a_rebound_name_is_turned_away(host, expected):
    for path in ("/api/info", "/", "/static/studio.js"):
        assert status(Guard(names=frozenset({"studio.lan"})), "GET", path, host=host) == expected


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
        assert status(Guard(), method, origin=origin) == expected


@pytest.mark.parametrize(
    ("site", "expected"), [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("", 403)]
)
def test_a_page_of_another_origin_cannot_read(site, expected):
    for method in ("GET", "POST"):
        assert status(Guard(), method, "/api/info", sec_fetch_site=site) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Bearer sesame-sesame", 200),
        ("bearer  sesame-sesame", 200),
        ("Bearer sesame", 401),
        ("Bearer sesame-sesame2", 401),
        ("Bearer sésame", 401),
        ("Basic sesame-sesame", 401),
        ("sesame-sesame", 401),
        ("", 401),
    ],
)
def test_a_token_opens(header, expected):
    guard = Guard(token="sesame-sesame")
    assert status(guard, authorization=header) == expected
    assert status(guard, "GET", "/api/info", authorization=header) == expected
    assert status(guard, "GET", "/api/metrics", authorization=header) == expected
    for path in ("/", "/static/studio.js", "/api/health", "/api/openapi.json"):
        assert status(guard, "GET", path, authorization=header) == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_which_addresses_are_this_machine_alone(host, expected):
    assert is_loopback(host) == expected


def test_every_answer_is_armoured(client, files):
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
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert "'unsafe" not in HEADERS["content-security-policy"]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404, 200, 422, 403, 421]


def test_a_preflight_from_elsewhere_gets_no_permission(client):
    answer = client.options(
        "/api/learn", headers={"origin": "http://evil.example", "access-control-request-method": "POST"}
    )
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_nothing_is_taught_from_elsewhere(client, files, model_file):
    before = model_file.read_bytes()
    answer = client.post(
        "/api/learn", files=files(7, 3), data={"name": "new"}, headers={"origin": "http://evil.example"}
    )
    assert answer.status_code == 403
    assert answer.json()["error"].startswith("The request comes from a page of another origin")
    assert model_file.read_bytes() == before


def test_a_studio_with_a_token(studio, files):
    client = studio(guard=Guard(token="sesame-sesame"))
    refused = client.post("/api/predict", files=files(1))
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "This studio needs its token" in refused.json()["error"]
    client.headers["authorization"] = "Bearer sesame-sesame"
    assert client.post("/api/predict", files=files(1)).status_code == 200
    document = client.get("/api/openapi.json").json()
    assert document["paths"]["/api/learn"]["post"]["security"] == [{"HTTPBearer": []}]
    assert "security" not in document["paths"]["/api/health"]["get"]
