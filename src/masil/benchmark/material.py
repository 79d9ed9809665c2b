"""All that a method sees of a draw, as arrays that any process can be handed, on this machine or another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from masil.benchmark.play import Lesson
from masil.benchmark.setting import Setting
from masil.data import Images
from masil.protocol import Protocol, sessions

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
        shots = Images.concat([session.train for session in stream[1:]])
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
