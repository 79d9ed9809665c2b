"""A task runs in a child process that its worker keeps: whatever kills the child costs that task and nothing else.

joblib's workers are threads here, and processes of other machines under dask.distributed or Ray. What each engine does
when a worker dies differs: loky gives up every task under way, and joblib waits for ever for a task that dask has given
up. So a worker never runs a task itself. It hands the task to a child and says how the child ended.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import joblib

from masil.errors import MasilError
from masil.files import Child, Parent

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
        child.send((task, dict(parts or {})))
        done, value = child.receive()
    except BaseException as error:
        ended = child.ended() if isinstance(error, EOFError) else None
        _end(child)
        if ended is None:
            raise
        raise TaskFailedError(f"its process {'was ' * ended.startswith('killed')}{ended}") from error
    with _LOCK:
        _IDLE.append(child)
    if not done:
        raise TaskFailedError(*value)
    return value


def end_children() -> None:
    """End the children of this process, idle or at work."""
    with _LOCK:
        children, _IDLE[:] = list(_ALL), []
    for child in children:
        _end(child)


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
        path = os.pathsep.join(folder for folder in sys.path if folder)
        child = Child([sys.executable, "-c", _ENTRY], os.environ | {"PYTHONPATH": path})
        _ALL.add(child)
        return child


def _end(child: Child) -> None:
    with _LOCK:
        _ALL.discard(child)
    child.end()


def serve() -> None:
    """Be the child: answer tasks until there are no more. What a task prints goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches every process of the terminal; no traceback here
    parent = Parent()
    while True:
        try:
            task, parts = parent.receive()
        except EOFError:
            return
        try:
            function, arguments = pickle.loads(task)  # noqa: S301  from our own parent
            parent.send((True, function(*arguments, **parts)))
        except MasilError as error:
            parent.send((False, (str(error),)))
        except Exception as error:  # noqa: BLE001  whatever a task raises is its answer
            parent.send((False, (f"{type(error).__name__}: {error}", traceback.format_exc())))
