"""The tutorial is run from its first block to its last, and what it prints is compared with what it shows.

`python tests/test_tutorial.py` runs it too, and writes what was printed into the page.

Python blocks share one namespace, shell blocks run through `sh -e`, all in one temporary folder. What a block prints is
in the `text` block that comes next; a block that is followed by none must print nothing. Words and whole numbers must
agree. Processors differ in the last digits, and so over an image or two that lie between two classes and over the
order of concepts: numbers with a decimal point may differ by 0.05, or by 6 where they are per cent, and a concept may
have another number. Seconds and dates are shown as "…".
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from masil.data import locate
from masil.hardware import Hardware, machine_key
from masil.storage import to_json, write_json

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.\d+(?![\w.])")
PASSING = re.compile(r"\d{4}-\d\d-\d\dT[\d:+]+|\d+\.\d(?= s\b)")  # a moment, or how long something took
CONCEPT = re.compile(r"\bconcept \d+")
TOLERANCE, PERCENT = 0.05, 6.0


@dataclass
class Block:
    """What is run, and what the page shows of its output, with the place of that in the page."""

    kind: str
    code: str
    line: int
    shown: str = ""
    place: tuple[int, int] | None = None


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    for fence in FENCE.finditer(page):
        kind, body = fence.groups()
        if kind == "text":
            assert found, "the page begins with output"
            assert found[-1].place is None, f"two blocks of output follow line {found[-1].line}"
            found[-1].shown, found[-1].place = body, fence.span(2)
        else:
            assert kind in ("python", "sh"), f"a block of {kind} cannot be run"
            found.append(Block(kind, body, page.count("\n", 0, fence.start()) + 1))
    return found


def prepare(folder: Path) -> dict[str, str]:
    """Give the environment of the page: a `masil` that is this interpreter's, an empty cache, no probe.

    What the machine can do is tried out once for a user and takes half a minute; here the answer is given beforehand.
    """
    command = folder / "bin" / "masil"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m masil "$@"\n')
    command.chmod(0o755)
    answer = Hardware("cpu", {"cpu": "float32"})
    write_json(folder / "cache" / "hardware" / f"{machine_key()}.json", to_json(answer))
    gone = ("MASIL_DATA", "FORCE_COLOR", "TTY_COMPATIBLE", "MASIL_DEBUG")
    kept = {name: value for name, value in os.environ.items() if name not in gone}
    path = os.pathsep.join([str(command.parent), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return kept | {
        "MASIL_CACHE": str(folder / "cache"),
        "MASIL_ENGINE": "onnxruntime",
        "PATH": path,
        "PYTHONIOENCODING": "utf-8",
    }


def run(block: Block, namespace: dict[str, Any]) -> str:
    """Run a block and give what it printed, without what passes and without spaces at the ends of lines."""
    if block.kind == "python":
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * block.line + block.code, str(PAGE), "exec"), namespace)
        printed = out.getvalue()
    else:
        done = subprocess.run(["sh", "-e"], input=block.code, capture_output=True, text=True, encoding="utf-8")
        assert done.returncode == 0, f"line {block.line}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        printed = done.stdout
    printed = PASSING.sub(lambda found: "…".ljust(len(found[0])) if "T" in found[0] else "…", printed)
    return "\n".join(line.rstrip() for line in printed.splitlines()) + "\n" if printed else ""


def difference(shown: str, printed: str) -> str | None:
    """Say where what is shown and what was printed differ by more than processors do."""
    ours, theirs = shown.splitlines(), printed.splitlines()
    for at in range(max(len(ours), len(theirs))):
        one, other = (lines[at] if at < len(lines) else "(nothing)" for lines in (ours, theirs))
        words, others = (" ".join(CONCEPT.sub("concept", NUMBER.sub("#", line)).split()) for line in (one, other))
        pairs = zip(NUMBER.finditer(one), NUMBER.finditer(other), strict=False)
        if words != others or any(
            abs(float(a[0]) - float(b[0])) > (PERCENT if one.startswith(" %", a.end()) else TOLERANCE) + 1e-9
            for a, b in pairs
        ):
            return f"the page shows   {one}\nbut it prints    {other}"
    return None


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Go into a folder and its environment, and come back."""
    before, environment = Path.cwd(), dict(os.environ)
    new = prepare(folder)
    (folder / "work").mkdir()
    try:
        os.environ.clear()
        os.environ.update(new)
        os.chdir(folder / "work")
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)


@pytest.mark.timeout(1800)  # under a minute on a core of its own
@pytest.mark.skipif(locate("characters") is None, reason="needs the images in the package miniworld")
@pytest.mark.skipif(sys.platform == "win32", reason="the page has blocks for a POSIX shell")
def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    wrong, namespace = [], {"__name__": "tutorial"}
    with inside(tmp_path):
        for block in blocks(PAGE.read_text(encoding="utf-8")):
            if found := difference(block.shown, run(block, namespace)):
                wrong.append(f"block in line {block.line}:\n{found}")
    assert not wrong, "\n\n".join(wrong)


def test_the_page_covers_what_it_promises() -> None:
    code = "\n".join(block.code for block in blocks(PAGE.read_text(encoding="utf-8")))
    for verb in ("fit", "learn", "predict", "predict_proba", "known", "score", "explain", "undo", "forget", "save"):
        assert f".{verb}(" in code, verb
    for verb in ("fit", "learn", "predict", "evaluate", "explain", "info", "undo", "forget", "export"):
        assert f"masil {verb} " in code, verb


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("digits 0.95\n", "digits 0.89\n"),
        ("right  95.5 %\n", "right  89.0 %\n"),
        ("10 classes\n", "11 classes\n"),
        ("A rather than B\n", "A rather than C\n"),
        ("A\n", "A\nB\n"),
        ("", "A\n"),
        ("A 0.50\n", "A\n"),
    ],
)
def test_a_difference_is_seen(shown: str, printed: str) -> None:
    assert difference(shown, printed) is not None


def test_last_digits_seconds_and_spaces_are_no_difference() -> None:
    assert difference("a   0.95  50.0 %\n", "a 0.94  51.5 %\n") is None
    assert difference("concept 7 adds 0.10\n", "concept 12 adds 0.10\n") is None
    printed = run(Block("sh", "echo 'in 12.5 s, 2026-05-03T10:11:12+00:00 ann'", 1), {})
    assert printed == "in … s, …                         ann\n"


def write() -> None:
    """Run the page and put what was printed into it, block by block, so that a stop loses nothing."""
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    with tempfile.TemporaryDirectory() as folder, inside(Path(folder)):
        for number, block in enumerate(blocks(PAGE.read_text(encoding="utf-8"))):
            printed = run(block, namespace)
            page = PAGE.read_text(encoding="utf-8")  # prose may have been edited meanwhile
            if (place := blocks(page)[number].place) is not None:
                PAGE.write_text(page[: place[0]] + printed + page[place[1] :], encoding="utf-8")
            elif printed:
                sys.stderr.write(f"Line {block.line} prints, but the page shows nothing:\n{printed}")
            sys.stderr.write(f"Line {block.line} is done.\n")


if __name__ == "__main__":
    write()
