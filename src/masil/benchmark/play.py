"""One method through one protocol: teach a session, test on every class seen so far, go on."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.data import Images
from masil.methods import Method
from masil.protocol import Protocol, Session, SessionScore, score_session


@final
@dataclass(frozen=True)
class Played:
    """A session's score and what it cost, the making of activations not counted."""

    session: Session
    score: SessionScore
    learn_seconds: float
    predict_seconds: float


def play(
    protocol: Protocol, stream: Iterable[Session], method: Method, activations: Callable[[Images], Tensor]
) -> Iterator[Played]:
    """Teach and judge session by session. A test image passes the backbone once, when its class is new."""
    tested: list[Tensor] = []
    for session in stream:
        shots = activations(session.train)
        start = time.perf_counter()
        if session.number == 0:
            method.fit(shots, session.train.labels)
        else:
            method.learn(shots, session.train.labels)
        learnt = time.perf_counter()
        tested.append(activations(session.test.subset(slice(sum(map(len, tested)), None))))
        seen = torch.cat(tested)
        asked = time.perf_counter()
        predicted = method.predict(seen)
        answered = time.perf_counter()
        score = score_session(protocol, session.number, predicted.cpu(), session.test.labels)
        yield Played(session, score, learnt - start, answered - asked)
