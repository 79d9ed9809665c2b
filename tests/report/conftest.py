"""Runs made up in memory, small and plain."""

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from masil.benchmark import DrawRecord, RunRecord, SessionRow, Stamp

STAMP = Stamp(
    commit="1a1d552", clean=True, command="masil run cifar100",
    versions={"masil": "0.1.0", "python": "3.11", "torch": "2.13", "numpy": "2.1"},
    machine={"cpu": "a processor", "cores": 2}, started="2026-01-02T03:04:05+00:00", seconds=83.0,
    model_bytes=1_500_000, peak_bytes=2_000_000_000,
)  # fmt: skip


def _draw(draw, accuracies, stamp):
    size = len(accuracies)
    rows = []
    for session, accuracy in enumerate(accuracies):
        novel = (accuracy - 20, accuracy - 10) if session else (None, None)
        rows.append(SessionRow(session, 60 + 5 * session, accuracy, accuracy + 5, *novel, 1.5, 0.5))
    confusion = tuple(tuple(8 if i == j else 1 for j in range(size)) for i in range(size))
    average, drop = sum(accuracies) / size, accuracies[0] - accuracies[-1]
    return DrawRecord(draw, tuple(rows), average, drop, 40.0, stamp, confusion=confusion)


def _record(method="masil", lasts=(55.0,), sessions=9, **changes):
    """A run whose accuracy falls in equal steps from 80 to each of `lasts`, one draw for each; stamps take changes."""
    stamp = replace(STAMP, command=f"masil run cifar100 --method {method}")
    stamp = replace(stamp, **{name: changes.pop(name) for name in vars(STAMP).keys() & changes.keys()})
    draws = []
    for number, last in enumerate(lasts):
        accuracies = [80 + (last - 80) * session / max(sessions - 1, 1) for session in range(sessions)]
        draws.append(_draw(number if len(lasts) > 1 else None, accuracies, stamp))
    values: dict[str, Any] = {
        "method": method, "protocol": "cifar100", "dataset": "cifar100", "way": 5, "shot": 5, "base_classes": 60,
        "backbone": "resnet18", "weights": "0123456789abcdef", "recipe": "cifar100-fast",
        "parameters": {"concepts": 64}, "given": {}, "draws": tuple(draws), "seed": 0,
        "weights_checksum": "0123456789abcdef", "data_checksum": "sha256:0a1b", "code": "c0de",
    }  # fmt: skip
    return RunRecord(**(values | changes))


@pytest.fixture
def record():
    return _record


class Page(HTMLParser):
    """What a page is made of, and whether everything is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def parse():
    return Page
