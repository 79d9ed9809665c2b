"""Machines that lie, made of paper: a child process that dies, hangs or babbles as its environment tells it."""

import sys
import textwrap

import pytest

PREAMBLE = """
import os, pickle, signal, sys, time

isa, arguments = os.environ.get("ONEDNN_MAX_CPU_ISA"), sys.argv[1:]
print(isa, *arguments, file=open(LOG, "a"), flush=True)

def say(**answer):
    content = pickle.dumps(answer)
    sys.stdout.flush()
    sys.stdout.buffer.write(b"\\nmasil message of %d bytes\\n" % len(content) + content)
    sys.stdout.buffer.flush()

def die(name):
    os.kill(os.getpid(), getattr(signal, name))
    time.sleep(60)

def train(precision, speed, deadly=None, wrong=None, products=None):
    for stage in ("matrix product", "convolution", "training"):
        say(begin=f"{precision} {stage}")
        if stage == deadly:
            die("SIGILL")
        figures = {"images/s": speed} if stage == "training" else {"GFLOP/s": products or speed}
        say(stage=f"{precision} {stage}", **({"error": "wrong numbers"} if stage == wrong else figures))
"""


@pytest.fixture(autouse=True)
def _untouched(tmp_path, monkeypatch):
    """Give each test a cache and an oneDNN setting of its own, and forget what it adopted."""
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path / "cache"))
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.setenv(name, "")  # so that what the test sets is undone
        monkeypatch.delenv(name)
    monkeypatch.setattr("masil.hardware.device._limits", set())


@pytest.fixture
def machine(tmp_path):
    """Give a trial command whose child runs `body` with `isa`, `arguments`, `say`, `die` and `train` at hand."""

    def build(body):
        script = tmp_path / "child.py"
        log = f"LOG = {str(tmp_path / 'asked.log')!r}\n"
        script.write_text(log + PREAMBLE + textwrap.dedent(body), encoding="utf-8")
        return [sys.executable, "-S", str(script)]

    return build


@pytest.fixture
def asked(tmp_path):
    """Give the trials that were asked for, one line each: the instruction set, then the arguments."""
    log = tmp_path / "asked.log"
    return lambda: log.read_text().splitlines() if log.exists() else []
