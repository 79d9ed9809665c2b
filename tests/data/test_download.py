import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from masil.data.download import download
from masil.errors import DataError, StorageError

CONTENT = np.random.default_rng(0).bytes(700_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """A server whose next answers can be told: `script` holds one behaviour a request, then it behaves."""

    script: list[str]
    asked: list[str | None]

    def do_GET(self) -> None:
        behaviour = self.script.pop(0) if self.script else "well"
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and behaviour != "no ranges" else 0
        if behaviour.isdigit():
            self.send_error(int(behaviour))
            return
        if start >= len(CONTENT):
            self.send_error(416)
            return
        body = CONTENT[start:] if behaviour != "wrong" else bytes(len(CONTENT) - start)
        self.send_response(206 if start else 200)
        if behaviour != "no length":
            self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if behaviour == "half" else body)
        self.close_connection = True

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Start a server with a script and give its address; `server.asked` are the ranges it was asked for."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    handler = type("Scripted", (Handler,), {"script": [], "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()

        def start(*script: str) -> str:
            handler.script[:] = script
            return f"http://127.0.0.1:{running.server_port}/file.tar.gz"

        start.asked = handler.asked
        yield start
        running.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder" / "file.tar.gz"


def part_of(target: Path) -> Path:
    return target.with_name("file.tar.gz.part")


def left_over(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize("behaviour", ["well", "no length"])
def test_a_file_arrives_whole_and_alone(server: Callable[..., str], target: Path, behaviour: str) -> None:
    assert download(server(behaviour), target, MD5) == target
    assert target.read_bytes() == CONTENT
    assert left_over(target) == ["file.tar.gz"]
    assert server.asked == [None]


def test_a_broken_connection_is_taken_up_where_it_broke(server: Callable[..., str], target: Path) -> None:
    download(server("half", "half", "503"), target, MD5, pause=0)
    assert target.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=350000-", "bytes=525000-", "bytes=525000-"]


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(server: Callable[..., str], target: Path) -> None:
    with pytest.raises(
        DataError, match=r"could not be downloaded \(the connection closed after 525,000 of 700,000 byt"
    ):
        download(server("half", "half"), target, MD5, attempts=2, pause=0)
    assert not target.exists()
    assert part_of(target).read_bytes() == CONTENT[:525_000]
    server.asked.clear()
    download(server(), target, MD5)
    assert target.read_bytes() == CONTENT
    assert server.asked == ["bytes=525000-"]


def test_an_interruption_by_the_user_leaves_what_has_arrived(
    server: Callable[..., str], target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def impatient(label: str, total: float | None) -> Iterator[Callable[[float], None]]:
        seen: list[float] = []

        def advance(step: float) -> None:
            seen.append(step)
            if len(seen) == 3:
                raise KeyboardInterrupt

        yield advance

    with monkeypatch.context() as patch:
        patch.setattr("masil.data.download.bar", impatient)
        with pytest.raises(KeyboardInterrupt):
            download(server(), target, MD5)
    assert 0 < part_of(target).stat().st_size < len(CONTENT)
    download(server(), target, MD5)
    assert target.read_bytes() == CONTENT
    assert server.asked[1].startswith("bytes=")


def test_a_server_that_cannot_continue_is_read_from_the_start(server: Callable[..., str], target: Path) -> None:
    download(server("half", "no ranges"), target, MD5, pause=0)
    assert target.read_bytes() == CONTENT
    assert left_over(target) == ["file.tar.gz"]


def test_what_another_file_left_behind_is_thrown_away(server: Callable[..., str], target: Path) -> None:
    target.parent.mkdir(parents=True)
    part_of(target).write_bytes(b"something else")
    download(server(), target, MD5)
    assert target.read_bytes() == CONTENT
    assert server.asked == ["bytes=14-", None]


@pytest.mark.parametrize("stray", [CONTENT, CONTENT + b"more", CONTENT[:-1]])
def test_a_part_that_is_already_whole_or_too_long_ends_well(
    server: Callable[..., str], target: Path, stray: bytes
) -> None:
    target.parent.mkdir(parents=True)
    part_of(target).write_bytes(stray)
    download(server(), target, MD5)
    assert target.read_bytes() == CONTENT


def test_a_wrong_checksum_is_said_and_nothing_is_kept(server: Callable[..., str], target: Path) -> None:
    wrong = hashlib.md5(bytes(len(CONTENT))).hexdigest()
    with pytest.raises(DataError, match=rf"sent a file with md5 {wrong} instead of {MD5}; it was thrown away"):
        download(server("wrong"), target, MD5)
    assert left_over(target) == []


def test_a_file_that_is_not_there_is_said_at_once(server: Callable[..., str], target: Path) -> None:
    url = server("404")
    with pytest.raises(DataError, match=rf"^{url} cannot be downloaded: the server answered 404 Not Found\.$"):
        download(url, target, MD5)
    assert len(server.asked) == 1


def test_a_server_in_trouble_is_asked_again_and_then_named(server: Callable[..., str], target: Path) -> None:
    with pytest.raises(DataError, match=r"could not be downloaded \(the server answered 500 Internal Server Error\)"):
        download(server("500", "500", "500"), target, MD5, attempts=3, pause=0)
    assert len(server.asked) == 3


def test_no_server_is_said(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(
        DataError, match=r"\(\[Errno \d+\] Connection refused\); 0 bytes of it are .*Is the network up\?"
    ):
        download("http://127.0.0.1:9/file.tar.gz", target, MD5, attempts=2, pause=0)


def test_only_http_is_read(target: Path) -> None:
    with pytest.raises(DataError, match="only http and https can"):
        download("file:///etc/passwd", target, MD5)


def test_a_place_that_cannot_be_written_is_said(server: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"x\.part cannot be written \((File exists|Not a directory)\)"):
        download(server(), tmp_path / "file" / "x", MD5)


def test_a_full_disk_is_said(server: Callable[..., str], target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("masil.data.download._append", full)
    with pytest.raises(StorageError, match=r"file\.tar\.gz\.part cannot be written \(No space left on device\)"):
        download(server(), target, MD5)
