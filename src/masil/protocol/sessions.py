"""The stream of sessions: each has its own training data, nothing of the past, and the test set of all classes seen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.data import Dataset, Images
from masil.errors import DataError
from masil.protocol.protocol import Protocol
from masil.protocol.splits import by_class, draw_shots
from masil.wording import plural


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
    names = [dataset.classes[label] for label in order]
    if twice := [name for rank, name in enumerate(names) if name in names[:rank]]:
        raise DataError(f"'{dataset.name}' has two classes called '{twice[0]}'; a class comes in one session.")
    train, test = (  # the positions of each class, in the order of the protocol
        [positions[label] for label in order]
        for positions in (by_class(images.labels, len(dataset.classes)) for images in (dataset.train, dataset.test))
    )
    _check_supply(protocol, names, train, test)
    rank = torch.full((len(dataset.classes),), -1)
    rank[order] = torch.arange(len(order))  # data set label → protocol label

    def ranked(images: Images, positions: Tensor) -> Images:
        return images.subset(positions).relabel(rank[images.labels[positions]])

    def stream() -> Iterator[Session]:
        for number in range(protocol.sessions + 1):
            labels = protocol.labels(number)
            if number == 0:
                chosen = torch.cat([train[label] for label in labels])
            elif draw is None and dataset.shots is not None and protocol.order is None:
                chosen = _standard_shots(protocol, dataset, number)
            else:
                drawn = [draw_shots(train[label], protocol.shot, draw or 0, order[label]) for label in labels]
                chosen = torch.cat(drawn)
            yield Session(
                number,
                labels=tuple(labels),
                names=tuple(names[label] for label in labels),
                train=ranked(dataset.train, chosen),
                test=ranked(dataset.test, torch.cat([test[label] for label in protocol.seen(number)])),
            )

    return stream()


def _order(protocol: Protocol, dataset: Dataset) -> list[int]:
    """Give the data set's label of each class, in the order in which they are taught."""
    available = len(dataset.classes)
    if protocol.order is None and protocol.classes > available:
        raise DataError(
            f"Protocol '{protocol.name}' needs {protocol.classes} classes "
            f"({protocol.base_classes} + {protocol.sessions} × {protocol.way}) but '{dataset.name}' has {available}. "
            "Lower `base_classes`, `sessions` or `way`."
        )
    order = list(range(protocol.classes) if protocol.order is None else protocol.order)
    if wrong := [label for label in (max(order), min(order)) if not 0 <= label < available]:
        raise DataError(
            f"Protocol '{protocol.name}' asks for class {wrong[0]}, but '{dataset.name}' has 0 … {available - 1}."
        )
    return order


def _check_supply(protocol: Protocol, names: Sequence[str], train: Sequence[Tensor], test: Sequence[Tensor]) -> None:
    """Refuse, before the first session is given, what could not be given in a later one."""
    for session in range(protocol.sessions + 1):
        need = 1 if session == 0 else protocol.shot
        for label in protocol.labels(session):
            if len(train[label]) < need:
                raise DataError(
                    f"Session {session} needs {plural(need, 'training image')} of '{names[label]}' but there "
                    f"{_are(len(train[label]))}. Add some, or lower `shot`."
                )
            if len(test[label]) == 0:
                raise DataError(f"Session {session} teaches '{names[label]}', but there is no test image of it.")


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
