"""Addresses, tokens and ports; and a studio that is killed in the middle of learning."""

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from masil.errors import InputError
from masil.learner import Masil
from masil.studio.served_model import ServedModel
from masil.studio.server import address, bind, check_token

SCRIPT = Path(__file__).parent / "serve_slowly.py"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_needs_no_token(host):
    assert check_token(host, None) is None
    assert check_token(host, "sesame-sesame") == "sesame-sesame"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "studio.example"])
def test_any_other_address_needs_one(host):
    with pytest.raises(InputError, match=f"At {host} other machines can reach the studio, so it needs a token"):
        check_token(host, None)
    made = {check_token(host, "auto") for _ in range(3)}
    assert len(made) == 3
    assert all(len(token) >= 32 for token in made)


@pytest.mark.parametrize("token", ["", "short", "with space in it", "schlüssel-schlüssel", "line\nbreak-line"])
def test_a_poor_token_is_refused(token):
    with pytest.raises(InputError, match="The token must be 8 plain characters or more"):
        check_token("127.0.0.1", token)


def test_a_port_in_use_is_a_sentence():
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(InputError, match=f"Port {port} at 127.0.0.1 is in use already; choose another"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port", "sentence"),
    [
        ("127.0.0.1", 70_000, "The port is 70000; it must lie between 0 and 65535"),
        ("no.such.host.invalid", 0, "There is no address called 'no.such.host.invalid'"),
        ("203.0.113.1", 0, "The studio cannot listen at 203.0.113.1"),
    ],
)
def test_an_address_that_cannot_be_had_is_a_sentence(host, port, sentence):
    with pytest.raises(InputError, match=sentence):
        bind(host, port)


def test_the_address_to_type():
    assert address("127.0.0.1", 8000, None) == "http://127.0.0.1:8000/"
    assert address("::1", 8000, None) == "http://[::1]:8000/"
    assert address("0.0.0.0", 80, "abc") == f"http://{socket.gethostname()}:80/#token=abc"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
def test_a_studio_killed_while_it_learns_leaves_the_old_or_the_new_model(model_file, files):
    child = subprocess.Popen([sys.executable, SCRIPT, model_file], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    where = child.stdout.readline().split()[0]
    landed = []

    def teach():
        for place in range(1000):
            try:
                answer = httpx.post(f"{where}api/learn", files=files(7, 2), data={"name": f"new {place}"}, timeout=60)
            except httpx.TransportError:
                return
            landed.append(answer.json()["session"]["number"])

    teacher = threading.Thread(target=teach)
    teacher.start()
    writing = False
    while not (writing and landed):  # it is writing the second class, or a later one
        time.sleep(0.01)
        writing = any(part.suffix == ".part" for part in model_file.parent.iterdir())
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    teacher.join()
    sessions = len(Masil.load(model_file, device="cpu").sessions_)
    assert sessions - 1 in (len(landed), len(landed) + 1)
    again = ServedModel(model_file, device="cpu")
    again.change(lambda model: model.undo())
    assert len(Masil.load(model_file, device="cpu").sessions_) == sessions - 1
