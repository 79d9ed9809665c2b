"""One method through one draw of a protocol: teach a session, test on every class seen so far, go on."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from masil.benchmark.setting import Setting
from masil.data import Images
from masil.methods import Checked, Queries, Samples
from masil.protocol import Protocol, SessionScore, confusion_by_session, score_session, sessions

Cosines = dict[str, tuple[float, float]]  # "train" and "test": of class means to their own vector and to the others
ARRAYS = ("base", "base_labels", "shots", "shot_labels", "tests", "test_labels")


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


@final
@dataclass(frozen=True)
class SessionData:
    """A session as a method meets it: what is taught, and every test image that it is judged by."""

    number: int
    taught: Samples
    tests: Queries
    truth: Tensor


def draw_data(setting: Setting, draws: Sequence[int | None]) -> dict[int | None, DrawData]:
    """Give the data of each draw; the draws share what is not theirs, and no image is seen twice."""
    streams = {draw: list(sessions(setting.protocol, setting.dataset, draw)) for draw in draws}
    first = next(iter(streams.values()))
    base, tests = first[0].train, first[-1].test

    def seen(images: Images) -> tuple[np.ndarray, np.ndarray]:
        return setting.activations(images).numpy(), images.labels.numpy()

    base_rows, base_labels = seen(base)
    test_rows, test_labels = seen(tests)
    shared = {"base": base_rows, "base_labels": base_labels, "tests": test_rows, "test_labels": test_labels}
    data = {}
    for draw, stream in streams.items():
        shots: Images = Images.concat([session.train for session in stream[1:]])
        rows, labels = seen(shots)
        data[draw] = DrawData(shots=rows, shot_labels=labels, images=(base, shots, tests), **shared)
    return data


def shots_checksum(setting: Setting, draw: int | None) -> str:
    """Give the sha256 of the shots that a draw teaches, images and labels."""
    state = hashlib.sha256()
    for session in list(sessions(setting.protocol, setting.dataset, draw))[1:]:
        state.update(session.train.fingerprint().encode())
        state.update(session.train.labels.numpy().tobytes())
    return state.hexdigest()


def session_data(protocol: Protocol, data: DrawData) -> Iterator[SessionData]:
    """Deal a draw out to its sessions: the shots of its new classes, the tests of every class seen."""
    base, base_labels, shots, shot_labels, tests, truth = (
        torch.from_numpy(np.require(getattr(data, name), requirements="W")) for name in ARRAYS
    )
    base_images, shot_images, test_images = data.images or (None, None, None)
    for number in range(protocol.sessions + 1):
        seen = int((truth < protocol.seen(number).stop).sum())  # they come first
        queries = Queries(tests[:seen], test_images and test_images.subset(slice(seen)))
        if number == 0:
            taught = Samples(base, base_images, labels=base_labels)
        else:
            new = protocol.labels(number)
            rows = ((shot_labels >= new.start) & (shot_labels < new.stop)).nonzero()[:, 0]
            taught = Samples(shots[rows], shot_images and shot_images.subset(rows), labels=shot_labels[rows])
        yield SessionData(number, taught, queries, truth[:seen])


@final
@dataclass(frozen=True)
class SessionResult:
    """A session's score and what it cost, the making of activations not counted."""

    score: SessionScore
    confusion: Tensor  # [s s] test images, by the sessions that taught the true and the predicted class
    learn_seconds: float
    predict_seconds: float
    cosines: Cosines = field(default_factory=dict)


def play(
    protocol: Protocol, sessions: Iterable[SessionData], method: Checked, fit_seconds: float
) -> Iterator[SessionResult]:
    """Teach and judge session by session a method that took `fit_seconds` to learn the base session."""
    shown: list[tuple[Tensor, Tensor]] = []
    for session in sessions:
        start = time.perf_counter()
        if session.number:
            method.learn(session.taught)
        learnt = time.perf_counter()
        predicted = method.predict(session.tests)
        answered = time.perf_counter()
        shown.append((session.taught.activations, session.taught.labels))
        answers = (protocol, session.number, predicted, session.truth)
        yield SessionResult(
            score=score_session(*answers),
            confusion=confusion_by_session(*answers),
            learn_seconds=learnt - start if session.number else fit_seconds,
            predict_seconds=answered - learnt,
            cosines=_cosines(method, shown, session),
        )


def _cosines(method: Checked, shown: list[tuple[Tensor, Tensor]], session: SessionData) -> Cosines:
    if method.method.trains == "network":  # it would have to run its network over everything once more
        return {}
    activations, labels = (torch.cat(parts) for parts in zip(*shown, strict=True))
    pairs = {
        "train": class_cosines(method, activations, labels),
        "test": class_cosines(method, session.tests.activations, session.truth),
    }
    return {name: pair for name, pair in pairs.items() if pair is not None}


def class_cosines(method: Checked, activations: Tensor, labels: Tensor) -> tuple[float, float] | None:
    """Give mean_k cos(h_k, w_k) and mean_{k≠k'} cos(h_k, w_k'), h_k the mean embedding of class k, w_k its vector.

    All images given count, and every class 0 … k − 1 has one. None for a method that compares no embeddings with class
    vectors.
    """
    geometry = method.geometry(Queries(activations))
    if geometry is None:
        return None
    embeddings, vectors = (part.detach().float().cpu() for part in geometry)
    k = int(labels.max()) + 1
    sums = torch.zeros(k, embeddings.shape[1]).index_add_(0, labels, embeddings)
    cosines = functional.normalize(sums) @ functional.normalize(vectors[:k]).T  # [k k]
    own_vector = float(cosines.diagonal().mean())
    return own_vector, float((cosines.sum() - cosines.diagonal().sum()) / max(1, k * (k - 1)))
