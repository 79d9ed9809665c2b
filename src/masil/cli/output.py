"""How commands speak: sentences, tables and JSON on standard output; the stages of long work on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from json import dumps
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

LONGEST = 60  # characters of a name in a sentence
WIDE = 160  # columns where there is no terminal


def say(text: str, *, json: bool = False) -> None:
    """Print a sentence for people: on standard error where standard output is for programs."""
    typer.echo(text, err=json)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print JSON for programs."""
    typer.echo(dumps(value, indent=indent, ensure_ascii=False, allow_nan=False))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> Table:
    """Make a table for people; the first `left` columns are words, the others numbers."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(title) if title else None, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        made.add_column(Text(column), justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        made.add_row(*(Text(shown(cell, None)) for cell in row))
    return made


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> None:
    """Print a table for people."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(table(title, columns, rows, left))


def shown(name: object, longest: int | None = LONGEST) -> str:
    """Give a name as a terminal can show it: on one line, no control characters, and not too long for a sentence."""
    text = "".join(letter if letter.isprintable() else "�" for letter in str(name))
    return text if longest is None or len(text) <= longest else f"{text[: longest - 1]}…"


def listed(names: Sequence[object], count: int = 5) -> str:
    """Name the first few: 'wren, owl, auk, …'."""
    return ", ".join(shown(name) for name in names[:count]) + (", …" if len(names) > count else "")


def named_shots(draw: int | None) -> str:
    """Name the shots of a draw."""
    return "standard shots" if draw is None else f"draw {draw}"


def say_failures(failed: Mapping[tuple[str, int | None], str]) -> None:
    """Say why draws of methods failed, each reason once for all the draws of a method that it holds for."""
    draws: dict[tuple[str, str], list[str]] = {}
    for (name, draw), sentence in failed.items():
        draws.setdefault((name, sentence), []).append(named_shots(draw))
    for (name, sentence), (first, *others) in draws.items():
        also = f" (also {', '.join(others)})" if others else ""
        typer.secho(f"{name}, {first}: failed: {sentence}{also}", fg="red")


def log_stages(*rooms: str, always: bool = False) -> None:
    """Let rooms say a line a stage on standard error: always, or only where it is no terminal, which shows bars."""
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    if always or not sys.stderr.isatty():
        for room in rooms:
            logging.getLogger(f"masil.{room}").setLevel(logging.INFO)
