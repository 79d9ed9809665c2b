"""A child process and its parent: messages both ways, and a sentence about how it ended."""

import os
import signal
import sys

import pytest

from masil.storage import Child

ECHO = """
import os, signal, sys
from masil.storage import Parent
parent = Parent()
print("what is printed is no message")
while True:
    match parent.receive():
        case "leave":
            sys.stderr.write("out of luck\\n")
            sys.exit(3)
        case int(number):
            os.kill(os.getpid(), number)
        case message:
            parent.send(message)
"""


@pytest.fixture
def child():
    with Child([sys.executable, "-c", ECHO], os.environ) as child:
        yield child


def test_messages_go_there_and_back(child):
    for message in ({"a": [1, 2.5]}, b"\nmasil message of 3 bytes\nabc", "x" * 1_000_000):
        child.send(message)
        assert child.receive(60) == message
    with pytest.raises(TimeoutError):
        child.receive(0.01)
    assert child.ended(0) is None


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("leave", "ended with code 3 at once: out of luck"),
        (int(signal.SIGSEGV), "killed by SIGSEGV (segmentation fault)"),
        (int(signal.SIGKILL), "killed by SIGKILL (was memory short?)"),
    ],
)
def test_it_is_known_how_a_child_ended(child, message, sentence):
    child.send(message)
    for _ in range(2):
        with pytest.raises(EOFError):
            child.receive(60)
    assert child.ended(60, unfinished=" at once") == sentence
    child.send("nobody is there")


def test_a_child_whose_parent_has_no_more_to_say_ends(child):
    child.process.stdin.close()
    assert child.ended(60) == "ended with code 1: EOFError"
