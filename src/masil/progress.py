"""One way to show progress: on standard error, only on a terminal, with the time left; standard output stays clean."""

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")
Bar = Callable[[float], None]

CONSOLE = Console(stderr=True)
_SILENT: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Show no progress inside this block."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


@contextmanager
def bar(label: str, total: float | None) -> Iterator[Bar]:
    """Show a bar and yield the function that advances it. Inside another bar, or off a terminal, show nothing."""
    if _SILENT.get() or not CONSOLE.is_terminal:
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with quiet(), Progress(*columns, console=CONSOLE, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda step: progress.advance(task, step)


def track(items: Iterable[T], label: str, total: float | None = None) -> Iterator[T]:
    """Yield `items`, one step of a bar for each."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with bar(label, total) as advance:
        for item in items:
            yield item
            advance(1)
