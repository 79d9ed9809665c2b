"""A task runs in a child process that its worker keeps: whatever kills the child costs that task and nothing else.

joblib's workers are threads here, and processes of other machines under dask.distributed or Ray. What each engine does
when a worker dies differs: loky gives up every task under way, and joblib waits for ever for a task that dask has given
up. So a worker never runs a task itself. It hands the task to a child over a pipe and says how the child ended.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any, final

import joblib

from masil.errors import MasilError

_LENGTH = struct.Struct(">Q")
_ENTRY = "from masil.benchmark.child import serve; serve()"


class TaskFailedError(MasilError):
    """A task raised an error, or its process died; the message is what there is to say of it, `trace` a traceback."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence, trace)
        self.sentence, self.trace = sentence, trace

    def __str__(self) -> str:
        return self.sentence


def pack(function: Callable[..., Any], *arguments: Any) -> bytes:
    """Make a task that any process can be handed, even if the function's module is only known here."""
    return pickle.dumps(joblib.wrap_non_picklable_objects((function, arguments), keep_wrapper=False))


def in_child(task: bytes, parts: Mapping[str, Any] | None = None) -> Any:
    """Run a packed task in a child process and give its result; `parts` are further arguments, by name."""
    child = _take()
    try:
        answer = child.ask(pickle.dumps((task, dict(parts or {})), protocol=5))
    except BaseException:
        child.end()
        raise
    _give_back(child)
    done, value = pickle.loads(answer)  # noqa: S301  from our own child
    if not done:
        raise TaskFailedError(*value)
    return value


def end_children() -> None:
    """End the children of this process, idle or at work."""
    with _LOCK:
        children, _IDLE[:] = list(_ALL), []
    for child in children:
        child.end()


@final
class Child:
    """A Python process that answers one task after the other, and ends when nobody can ask it any more."""

    def __init__(self) -> None:
        self.complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed in `end`
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self.process = subprocess.Popen(  # noqa: S603  the command is ours
            [sys.executable, "-c", _ENTRY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints,
            env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip

    def ask(self, question: bytes) -> bytes:
        """Give the answer, or say how the process ended before it gave one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):  # a broken pipe: the reading says what became of it
            _send(self.process.stdin, question)
            if (answer := _receive(self.process.stdout)) is not None:
                return answer
        raise TaskFailedError(f"its process {self._fate()}")

    def end(self) -> None:
        """Kill the process, if it lives, and forget it."""
        with _LOCK:
            _ALL.discard(self)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.complaints):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _fate(self) -> str:
        code = self.process.wait()
        if code < 0:
            with suppress(ValueError):
                why = " (was memory short?)" if signal.Signals(-code).name == "SIGKILL" else ""
                return f"was killed by {signal.Signals(-code).name}{why}"
            return f"was killed by signal {-code}"
        self.complaints.seek(0)
        last = self.complaints.read().decode(errors="replace").strip().rpartition("\n")[2].strip()
        return f"ended with code {code}" + (f": {last[:200]}" if last else "")


_LOCK = threading.Lock()
_ALL: set[Child] = set()
_IDLE: list[Child] = []


def _take() -> Child:
    with _LOCK:
        while _IDLE:
            child = _IDLE.pop()
            if child.process.poll() is None:
                return child
            _ALL.discard(child)
        child = Child()
        _ALL.add(child)
        return child


def _give_back(child: Child) -> None:
    with _LOCK:
        _IDLE.append(child)


def serve() -> None:
    """Be the child: answer tasks from standard input until it closes. What a task prints goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches every process of the terminal; no traceback here
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (question := _receive(sys.stdin.buffer)) is not None:
        _send(answers, _answer(question))


def _answer(question: bytes) -> bytes:
    try:
        task, parts = pickle.loads(question)  # noqa: S301  from our own parent
        function, arguments = pickle.loads(task)  # noqa: S301
        return pickle.dumps((True, function(*arguments, **parts)), protocol=5)
    except MasilError as error:
        return pickle.dumps((False, (str(error),)))
    except Exception as error:  # noqa: BLE001  whatever a task raises is its answer
        return pickle.dumps((False, (f"{type(error).__name__}: {error}", traceback.format_exc())))


def _send(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """Read one message, None where the pipe closed before its end."""
    start = pipe.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(start)[0]
    content = pipe.read(length)
    return content if len(content) == length else None
