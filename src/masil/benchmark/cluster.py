"""Where cells are played: in child processes of this machine, or in children of a dask cluster's workers.

joblib's workers are threads here, and processes of other machines under dask.distributed. What each engine does when a
worker dies differs: loky gives up every task under way, and joblib waits for ever for a task that dask has given up. So
a worker never runs a task itself. It hands the task to a child it keeps and says how the child ended; whatever kills
the child costs that task and nothing else.

A cluster's worker is handed a task as bytes, which only its child opens, and the arrays of a draw, which are sent to
the cluster once. When a worker is lost, dask gives its tasks to others, but tasks whose arrays it alone held are given
up. Then the arrays are sent again, to a worker that is left or comes back; so a cluster without workers is noticed too.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, final

import joblib

import masil
from masil.benchmark.provenance import package_code
from masil.errors import InputError, MasilError
from masil.storage import Child, Parent
from masil.wording import missing_extra

_ENTRY = "from masil.benchmark.cluster import serve; serve()"


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


@final
class Children:
    """Child processes that are started when a task finds none idle; threads may use them at the same time.

    They have the variables of `environment` where this process has no others.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(environment or {})
        self._lock = threading.Lock()
        self._all: set[Child] = set()
        self._idle: list[Child] = []

    def run(self, task: bytes, parts: Mapping[str, Any] | None = None) -> Any:
        """Run a packed task in a child process and give its result; `parts` are further arguments, by name."""
        child = self._take()
        try:
            child.send((task, dict(parts or {})))
            done, value = child.receive()
        except BaseException as error:
            ended = child.ended() if isinstance(error, EOFError) else None
            self._end(child)
            if ended is None:
                raise
            raise TaskFailedError(f"its process {'was ' * ended.startswith('killed')}{ended}") from error
        with self._lock:
            self._idle.append(child)
        if not done:
            raise TaskFailedError(*value)
        return value

    def end(self) -> None:
        """End all children, idle or at work."""
        with self._lock:
            children, self._idle[:] = list(self._all), []
        for child in children:
            self._end(child)

    def _take(self) -> Child:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.process.poll() is None:
                    return child
                self._all.discard(child)
            path = os.pathsep.join(folder for folder in sys.path if folder)
            child = Child([sys.executable, "-c", _ENTRY], self._environment | os.environ | {"PYTHONPATH": path})
            self._all.add(child)
            return child

    def _end(self, child: Child) -> None:
        with self._lock:
            self._all.discard(child)
        child.end()


@cache
def children() -> Children:
    """Give the children of this process: starting one takes seconds, so that the next grid can use them again."""
    return Children()


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


CONNECT = 10.0  # seconds for the scheduler to answer
PATIENCE = 60.0  # seconds without any worker after which the grid is given up; a lost one may be started again
TRIES = 3  # how often a cell is handed out whose worker is lost with it

Identity = tuple[str, str]  # version and checksum of the code


class ClusterLostError(MasilError):
    """The cluster cannot play any more cells."""


@contextmanager
def open_cluster(address: str, sources: Iterable[Path] = ()) -> Iterator[Cluster]:
    """Connect to the scheduler at an address; `sources` are modules that tasks need and workers may not have."""
    try:
        import distributed
    except ImportError as error:
        raise InputError(missing_extra("Clusters are", "cluster")) from error
    connect: Any = distributed.Client  # without types
    try:
        client = connect(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"No scheduler answers at {address} ({error}); start one with `dask scheduler`, which says its address."
        ) from error
    with client:
        cluster = Cluster(address, client)
        cluster.check_workers()
        for source in sources:
            client.upload_file(str(source), load=False)
        yield cluster


@final
class Cluster:
    """The workers behind a scheduler; threads may play on them at the same time."""

    def __init__(self, address: str, client: Any) -> None:
        self.address, self.client = address, client
        self._lock = threading.Lock()
        self._sent: dict[int, tuple[Any, Any]] = {}  # id -> the value, and the future that stands for it on the cluster
        self._lost: ClusterLostError | None = None

    def check_workers(self) -> None:
        """Wait for a worker, and refuse workers whose masil is not the one here."""
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise InputError(
                f"The cluster at {self.address} has no worker; start some with: dask worker {self.address}"
            ) from error
        here = identity()
        for worker, there in self.client.run(identity, on_error="return").items():
            if isinstance(there, Exception):
                raise InputError(f"The worker {worker} cannot load masil ({there}); install masil {here[0]} there.")
            refuse_other_code(here, there, worker)

    def play(self, task: bytes, parts: Mapping[str, Any]) -> Any:
        """Run a packed task in a child of some worker and give its result; `parts` are further arguments, by name."""

        def call(*arguments: Any) -> Any:  # travels as code, so that the scheduler, which opens it, needs no masil
            from masil.benchmark.cluster import run_task

            return run_task(*arguments)

        for _ in range(TRIES):
            sent = {name: self._send(part) for name, part in parts.items()}
            try:
                return self.client.submit(call, identity(), task, sent, pure=False).result()
            except MasilError:
                raise
            except CancelledError:  # a worker was lost, and with it arrays that the task needs
                continue
            except Exception as error:
                raise TaskFailedError(f"its worker was lost ({type(error).__name__}: {error})") from error
        raise TaskFailedError(f"its worker was lost, {TRIES} times")

    def _send(self, part: Any) -> Any:
        """Give the future of a value on the cluster; send it, if it is not there or not there any more."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            _, future = self._sent.get(id(part), (None, None))
            if future is None or future.cancelled():
                try:
                    future = self.client.scatter(part, hash=False, timeout=PATIENCE)
                except Exception as error:
                    self._lost = ClusterLostError(
                        f"The cluster at {self.address} has no worker any more ({error}). What is finished is kept; "
                        "start workers again and give the same command."
                    )
                    raise self._lost from error
                self._sent[id(part)] = part, future
            return future


def run_task(expected: Identity, task: bytes, parts: Mapping[str, Any]) -> Any:
    """Be the worker: run a task in a child, unless this worker, come later than the check, has another masil."""
    refuse_other_code(expected, identity(), "that joined the cluster")
    return children().run(task, parts)


def identity() -> Identity:
    """Say which masil this process has."""
    return masil.__version__, package_code()


def refuse_other_code(here: Identity, there: Identity, worker: str) -> None:
    """Refuse a worker with another version or other code: figures may follow from the difference."""
    if here != there:
        what = f"masil {there[0]}" if there[0] != here[0] else f"another code of masil {here[0]}"
        raise InputError(f"The worker {worker} has {what}, and here is {here[0]}; install the same masil everywhere.")
