"""All that a method sees of a draw, as arrays that any process can be handed, on this machine or another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Self, final

import numpy as np
import torch
from torch import Tensor

from masil.benchmark.play import Lesson
from masil.benchmark.setting import Setting
from masil.data import Framing, Images
from masil.protocol import Protocol, sessions

Index = Tensor | Sequence[int] | slice
Material = dict[str, np.ndarray]  # base, base_labels, shots, shot_labels, tests, truth; each in the order of sessions


def materials(setting: Setting, draws: Sequence[int | None]) -> dict[int | None, Material]:
    """Give activations and protocol labels by draw; the draws share what is not theirs, and no image is seen twice."""
    found: dict[int | None, Material] = {}
    shared: Material = {}
    for draw in draws:
        stream = list(sessions(setting.protocol, setting.dataset, draw))
        shared = shared or {
            **_arrays(setting, stream[0].train, "base", "base_labels"),
            **_arrays(setting, stream[-1].test, "tests", "truth"),
        }
        shots = Joined([session.train for session in stream[1:]])
        found[draw] = shared | _arrays(setting, shots, "shots", "shot_labels")
    return found


def shots_checksum(setting: Setting, draw: int | None) -> str:
    """Give the sha256 of the shots that a draw teaches, images and labels."""
    state = hashlib.sha256()
    for session in list(sessions(setting.protocol, setting.dataset, draw))[1:]:
        state.update(session.train.fingerprint().encode())
        state.update(session.train.labels.numpy().tobytes())
    return state.hexdigest()


def _arrays(setting: Setting, images: Images, name: str, labels: str) -> Material:
    return {name: setting.activations(images).numpy(), labels: images.labels.numpy()}


def lessons(protocol: Protocol, arrays: Material) -> Iterator[Lesson]:
    """Deal a draw's arrays out to its sessions: the shots of its own classes, the tests of every class seen."""
    held = {name: torch.from_numpy(np.require(array, requirements="W")) for name, array in arrays.items()}
    truth, shot_labels = held["truth"], held["shot_labels"]
    for number in range(protocol.sessions + 1):
        seen = int((truth < protocol.seen(number).stop).sum())  # they come first
        new = protocol.labels(number)
        own = (shot_labels >= new.start) & (shot_labels < new.stop)
        shots, labels = (held["base"], held["base_labels"]) if number == 0 else (held["shots"][own], shot_labels[own])
        yield Lesson(number, shots, labels, held["tests"][:seen], truth[:seen])


@final
class Joined(Images):
    """Images of several sources behind one another, so that a network is opened once for all of them."""

    def __init__(self, parts: Sequence[Images]) -> None:
        self.parts = parts
        self.labels = torch.cat([part.labels for part in parts]) if parts else torch.empty(0, dtype=torch.int64)

    def load(self, index: Index, framing: Framing) -> Tensor:
        """Decode run by run."""
        loaded = [part.load(slice(None), framing) for part in self.subset(index).parts]
        return torch.cat(loaded) if loaded else torch.empty((0, 3, framing.crop, framing.crop), dtype=torch.uint8)

    def subset(self, index: Index) -> Self:
        """Split the positions into runs that lie in one part, and take a view for each."""
        wanted: Tensor = torch.arange(len(self))[index]
        ends = torch.tensor([len(part) for part in self.parts]).cumsum(0)
        places = torch.searchsorted(ends, wanted, right=True)
        _, lengths = torch.unique_consecutive(places, return_counts=True)
        views = []
        for run in torch.split(wanted, lengths.tolist()):
            place = int(torch.searchsorted(ends, run[0], right=True))
            part = self.parts[place]
            views.append(part.subset(run - (int(ends[place]) - len(part))))
        return type(self)(views)

    def relabel(self, labels: Tensor) -> Self:
        """Give the same images with other labels."""
        split = torch.split(labels, [len(part) for part in self.parts])
        return type(self)([part.relabel(own) for part, own in zip(self.parts, split, strict=True)])

    def fingerprint(self) -> str:
        """Hash the parts' checksums."""
        return hashlib.sha256("\n".join(part.fingerprint() for part in self.parts).encode()).hexdigest()

    def name(self, position: int) -> str:
        """Name the image as its part does."""
        return self.subset([position]).parts[0].name(0)
