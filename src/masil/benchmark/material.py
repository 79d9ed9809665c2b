"""All that a method sees of a draw, and how it is dealt out to sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch

from masil.benchmark.play import SessionData
from masil.benchmark.setting import Setting
from masil.data import Images
from masil.methods import Queries, Samples
from masil.protocol import Protocol, sessions


@final
@dataclass(frozen=True)
class DrawData:
    """Activations [n d] and protocol labels [n] of a draw, in the order of sessions; images for methods that see them.

    Arrays, so that any process can be handed them, on this machine or another.
    """

    base: np.ndarray
    base_labels: np.ndarray
    shots: np.ndarray
    shot_labels: np.ndarray
    tests: np.ndarray
    test_labels: np.ndarray
    images: tuple[Images, Images, Images] | None = None  # of base, shots and tests, not decoded


def draw_data(setting: Setting, draws: Sequence[int | None]) -> dict[int | None, DrawData]:
    """Give the data of each draw; the draws share what is not theirs, and no image is seen twice."""
    found: dict[int | None, DrawData] = {}
    shared: tuple[Images, Images] | None = None
    for draw in draws:
        stream = list(sessions(setting.protocol, setting.dataset, draw))
        base, tests = shared = shared or (stream[0].train, stream[-1].test)
        shots: Images = Images.concat([session.train for session in stream[1:]])
        if found:
            first = next(iter(found.values()))
            arrays = {name: getattr(first, name) for name in ("base", "base_labels", "tests", "test_labels")}
        else:
            arrays = {
                "base": setting.activations(base).numpy(),
                "base_labels": base.labels.numpy(),
                "tests": setting.activations(tests).numpy(),
                "test_labels": tests.labels.numpy(),
            }
        found[draw] = DrawData(
            shots=setting.activations(shots).numpy(),
            shot_labels=shots.labels.numpy(),
            images=(base, shots, tests),
            **arrays,
        )
    return found


def shots_checksum(setting: Setting, draw: int | None) -> str:
    """Give the sha256 of the shots that a draw teaches, images and labels."""
    state = hashlib.sha256()
    for session in list(sessions(setting.protocol, setting.dataset, draw))[1:]:
        state.update(session.train.fingerprint().encode())
        state.update(session.train.labels.numpy().tobytes())
    return state.hexdigest()


def session_data(protocol: Protocol, data: DrawData) -> Iterator[SessionData]:
    """Deal a draw out to its sessions: the shots of its new classes, the tests of every class seen."""
    names = ("base", "base_labels", "shots", "shot_labels", "tests", "test_labels")
    base, base_labels, shots, shot_labels, tests, truth = (
        torch.from_numpy(np.require(getattr(data, name), requirements="W")) for name in names
    )
    base_images, shot_images, test_images = data.images or (None, None, None)
    for number in range(protocol.sessions + 1):
        seen = int((truth < protocol.seen(number).stop).sum())  # they come first
        queries = Queries(tests[:seen], None if test_images is None else test_images.subset(slice(seen)))
        if number == 0:
            taught = Samples(base, base_images, labels=base_labels)
        else:
            new = protocol.labels(number)
            rows = ((shot_labels >= new.start) & (shot_labels < new.stop)).nonzero()[:, 0]
            images = None if shot_images is None else shot_images.subset(rows)
            taught = Samples(shots[rows], images, labels=shot_labels[rows])
        yield SessionData(number, taught, queries, truth[:seen])
