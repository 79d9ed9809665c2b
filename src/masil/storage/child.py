"""A child process that exchanges messages with this one. However it ends, this process goes on and can say how.

A message is any value that can be pickled; it follows a line that says how many bytes it has. Whatever else a child
writes to its standard output is skipped.
"""

import io
import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Self, final

_HEADER = re.compile(rb"masil message of (\d+) bytes\n")


@final
class Child:
    """A process whose standard input and output carry messages; leaving the `with` block ends it.

    With `group`, the processes that it starts end with it, where the system knows process groups.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, group: bool = False) -> None:
        self._group = group and os.name == "posix"
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in `end`
        try:
            self.process = subprocess.Popen(  # noqa: S603  the command is ours
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=dict(environment),
                start_new_session=self._group,
            )  # fmt: skip
        except OSError:
            self._errors.close()
            raise
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def send(self, message: Any) -> None:
        """Give the child a message; if it has ended, nothing happens, and `receive` will say so."""
        assert self.process.stdin is not None
        with suppress(OSError):
            _write(self.process.stdin, message)

    def receive(self, seconds: float | None = None) -> Any:
        """Wait for the next message. EOFError: the child closed its output; TimeoutError: it took too long."""
        try:
            content = self._messages.get(timeout=None if seconds is None else max(0.0, seconds))
        except queue.Empty as error:
            raise TimeoutError from error
        if content is None:
            self._messages.put(None)  # for whoever asks again
            raise EOFError
        return pickle.loads(content)  # noqa: S301  from our own child

    def ended(self, grace: float | None = None, *, unfinished: str = "") -> str | None:
        """Say how the process ended ("killed by SIGILL (illegal instruction)"), None if it has not within `grace` s.

        `unfinished` is added where it left by itself: "ended with code 0 before it was done".
        """
        try:
            code = self.process.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            return None
        if code == -getattr(signal, "SIGKILL", 0):
            return "killed by SIGKILL (was memory short?)"
        if code < 0:
            with suppress(ValueError):
                return f"killed by {signal.Signals(-code).name} ({(signal.strsignal(-code) or 'unknown').lower()})"
            return f"killed by signal {-code}"
        if code & 0xFFFFFFFF == 0xC000001D:  # Windows: STATUS_ILLEGAL_INSTRUCTION
            return "killed by an illegal instruction (status 0xC000001D)"
        if code & 0xFFFFFFFF >= 0xC0000000:
            return f"crashed (status 0x{code & 0xFFFFFFFF:X})"
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2].strip()
        return f"ended with code {code}{unfinished}" + (f": {last[:200]}" if last else "")

    def end(self) -> None:
        """Kill the process, if it lives, and close what connects it with this one."""
        if self.process.poll() is None:
            with suppress(OSError):
                if self._group:
                    os.killpg(self.process.pid, signal.SIGKILL)
                else:
                    self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self._errors):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _listen(self) -> None:
        """Pass messages on from the child's output until it closes; on a thread of its own, so that waiting can end."""
        assert self.process.stdout is not None
        with suppress(OSError, ValueError), self.process.stdout as pipe:
            while (content := _read(pipe)) is not None:
                self._messages.put(content)
        self._messages.put(None)


@final
class Parent:
    """The other end, in the child: its parent's messages, and the way back. What is printed goes to standard error."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # what is printed stands before the error that ends the child

    def send(self, message: Any) -> None:
        """Give the parent a message."""
        _write(self._answers, message)

    def receive(self) -> Any:
        """Wait for the parent's next message; EOFError: it has no more."""
        if (content := _read(sys.stdin.buffer)) is None:
            raise EOFError
        return pickle.loads(content)  # noqa: S301  from our own parent


def _write(pipe: IO[bytes], message: Any) -> None:
    content = pickle.dumps(message, protocol=5)
    pipe.write(b"\nmasil message of %d bytes\n" % len(content))
    pipe.write(content)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    """Read one message, None where the pipe closes before its end."""
    for line in pipe:
        if header := _HEADER.fullmatch(line):
            content = pipe.read(int(header[1]))
            return content if len(content) == int(header[1]) else None
    return None
