"""The stream of sessions: each has its own training data, nothing of the past, and the test set of all classes seen."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from masil.data import Dataset, Images
from masil.errors import DataError, InputError
from masil.protocol.protocol import Protocol


@final
@dataclass(frozen=True)
class Session:
    """What a learner is given in one session: training images of new classes; and what it is judged by afterwards."""

    number: int
    labels: tuple[int, ...]  # the new classes
    names: tuple[str, ...]
    train: Images  # of the new classes alone
    test: Images  # of every class seen so far; those of earlier sessions come first, in the same order as there


def sessions(protocol: Protocol, dataset: Dataset, draw: int | None = None) -> Iterator[Session]:
    """Yield the sessions of a protocol. Nothing is decoded before a learner asks for it.

    `draw` seeds the choice of shots. Without it they are the field's standard ones where the data set has lists of
    them, else those of draw 0.
    """
    order = _order(protocol, dataset)
    train, test = (
        by_class(dataset.train.labels, len(dataset.classes)),
        by_class(dataset.test.labels, len(dataset.classes)),
    )
    _check_supply(protocol, dataset, order, train, test)
    return once(_stream(protocol, dataset, order, train, test, draw))


def once(stream: Iterable[Session]) -> Iterator[Session]:
    """Pass sessions on, refusing a class that an earlier one has taught."""
    taught: dict[str, int] = {}
    for session in stream:
        for name in session.names:
            if name in taught:
                raise InputError(
                    f"Session {session.number} teaches '{name}' again, which session {taught[name]} has taught; "
                    "in a class-incremental stream a class comes in one session."
                )
        taught.update(dict.fromkeys(session.names, session.number))
        yield session


def by_class(labels: Tensor, classes: int) -> list[Tensor]:
    """Give for each class the positions that hold it, in order."""
    counts = torch.bincount(labels, minlength=classes)
    return list(torch.tensor_split(torch.argsort(labels, stable=True), counts.cumsum(0)[:-1].tolist()))


def draw_shots(positions: Tensor, shot: int, draw: int, label: int) -> Tensor:
    """Choose `shot` of a class's images. The choice depends on the draw and the class alone, not on the protocol."""
    chosen = np.random.default_rng([draw, label]).permutation(len(positions))[:shot]
    return positions[torch.from_numpy(chosen).sort().values]


def _stream(
    protocol: Protocol, dataset: Dataset, order: Tensor, train: list[Tensor], test: list[Tensor], draw: int | None
) -> Iterator[Session]:
    rank = torch.full((len(dataset.classes),), -1)
    rank[order] = torch.arange(len(order))  # data set label → protocol label
    for number in range(protocol.sessions + 1):
        labels = protocol.labels(number)
        own = [int(order[label]) for label in labels]
        if number == 0:
            chosen = torch.cat([train[label] for label in own])
        elif draw is None and dataset.shots is not None and protocol.order is None:
            chosen = _standard_shots(protocol, dataset, number)
        else:
            chosen = torch.cat([draw_shots(train[label], protocol.shot, draw or 0, label) for label in own])
        seen = torch.cat([test[int(order[label])] for label in protocol.seen(number)])
        yield Session(
            number,
            labels=tuple(labels),
            names=tuple(dataset.classes[label] for label in own),
            train=_ranked(dataset.train.subset(chosen), rank),
            test=_ranked(dataset.test.subset(seen), rank),
        )


def _ranked(images: Images, rank: Tensor) -> Images:
    return images.relabel(rank[images.labels])


def _order(protocol: Protocol, dataset: Dataset) -> Tensor:
    available = len(dataset.classes)
    if protocol.order is None and protocol.classes > available:
        raise DataError(
            f"Protocol '{protocol.name}' needs {protocol.classes} classes "
            f"({protocol.base_classes} + {protocol.sessions} × {protocol.way}) but '{dataset.name}' has {available}. "
            "Lower `base_classes`, `sessions` or `way`."
        )
    order = torch.tensor(protocol.order if protocol.order is not None else range(protocol.classes), dtype=torch.int64)
    if int(order.max()) >= available or int(order.min()) < 0:
        wrong = int(order.max()) if int(order.max()) >= available else int(order.min())
        raise DataError(
            f"Protocol '{protocol.name}' asks for class {wrong}, but '{dataset.name}' has 0 … {available - 1}."
        )
    return order


def _check_supply(protocol: Protocol, dataset: Dataset, order: Tensor, train: list[Tensor], test: list[Tensor]) -> None:
    """Every session can be given before the first one is."""
    for label, place in zip(order.tolist(), range(protocol.classes), strict=True):
        session = int(protocol.session_of(torch.tensor(place)))
        need = 1 if session == 0 else protocol.shot
        if len(train[label]) < need:
            raise DataError(
                f"Session {session} needs {need} training image{'s' if need > 1 else ''} of "
                f"'{dataset.classes[label]}' but there {_are(len(train[label]))}. Add some, or lower `shot`."
            )
        if len(test[label]) == 0:
            raise DataError(f"Session {session} teaches '{dataset.classes[label]}', but there is no test image of it.")


def _are(count: int) -> str:
    return {0: "is none", 1: "is only 1"}.get(count, f"are only {count}")


def _standard_shots(protocol: Protocol, dataset: Dataset, number: int) -> Tensor:
    """Take the listed shots, holding them to what the protocol promises."""
    assert dataset.shots is not None
    expected = protocol.labels(number)
    if number not in dataset.shots:
        raise DataError(f"'{dataset.name}' has no standard shots for session {number}; choose them with `draw`.")
    chosen = dataset.shots[number]
    counts = torch.bincount(dataset.train.labels[chosen], minlength=protocol.classes)
    for label in torch.nonzero(counts).flatten().tolist():
        if label not in expected:
            raise DataError(
                f"The standard shots of session {number} hold '{dataset.classes[label]}', "
                f"which is not one of the session's classes {expected.start} … {expected.stop - 1}."
            )
    for label in expected:
        if int(counts[label]) != protocol.shot:
            raise DataError(
                f"The standard shots of session {number} hold {int(counts[label])} images of "
                f"'{dataset.classes[label]}', but the protocol takes {protocol.shot}. "
                "Choose shots with `draw` for another `shot`."
            )
    return chosen
