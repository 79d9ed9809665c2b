"""Which classes come when: the base session, then `sessions` new ones of `way` classes with `shot` images each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from masil.data import Dataset
from masil.errors import InputError
from masil.storage import from_json, read_json


@final
@dataclass(frozen=True)
class Protocol:
    """The shape of an FSCIL benchmark. Session 0 is the base session.

    Classes come in label order, or in `order`, a sequence of the data set's labels. Inside a protocol a class is called
    by its place in that order, so the base classes are always 0 … base_classes − 1 and every later session appends.
    """

    name: str
    dataset: str
    base_classes: int
    sessions: int
    way: int
    shot: int
    order: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for field, least in (("base_classes", 1), ("sessions", 0), ("way", 1), ("shot", 1)):
            value = getattr(self, field)
            if not isinstance(value, int) or value < least:
                raise InputError(f"Protocol '{self.name}' has {field} = {value!r}; it needs a whole number >= {least}.")
        if self.order is None:
            return
        if repeated := sorted({label for label in self.order if self.order.count(label) > 1}):
            raise InputError(f"Protocol '{self.name}' teaches class {repeated[0]} twice; a class comes in one session.")
        if len(self.order) != self.classes:
            raise InputError(
                f"Protocol '{self.name}' orders {len(self.order)} classes but has {self.classes} "
                f"({self.base_classes} + {self.sessions} × {self.way})."
            )

    @property
    def classes(self) -> int:
        """All classes, base and novel."""
        return self.base_classes + self.sessions * self.way

    @property
    def novel_share(self) -> float:
        """The share of novel ones among all classes."""
        return 1 - self.base_classes / max(self.classes, 1)

    def labels(self, session: int) -> range:
        """The classes that `session` teaches."""
        if not 0 <= session <= self.sessions:
            raise InputError(f"Protocol '{self.name}' has sessions 0 … {self.sessions}; there is no session {session}.")
        if session == 0:
            return range(self.base_classes)
        start = self.base_classes + (session - 1) * self.way
        return range(start, start + self.way)

    def seen(self, session: int) -> range:
        """The classes known once `session` is over."""
        return range(self.labels(session).stop)

    def session_of(self, labels: Tensor) -> Tensor:
        """The session in which each class is taught."""
        return torch.clamp((labels - self.base_classes).div(self.way, rounding_mode="floor") + 1, min=0)


PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol("characters", "characters", base_classes=32, sessions=6, way=5, shot=5),
        Protocol("cifar100", "cifar100", base_classes=60, sessions=8, way=5, shot=5),
        Protocol("miniimagenet", "miniimagenet", base_classes=60, sessions=8, way=5, shot=5),
        Protocol("cub200", "cub200", base_classes=100, sessions=10, way=10, shot=5),
        Protocol("omniglot", "omniglot", base_classes=1200, sessions=40, way=10, shot=5),
    )
}


def read_protocol(file: Path) -> Protocol:
    """Read a protocol: a JSON object with the fields of `Protocol`, where `dataset` is a name or a folder of photos."""
    value = read_json(file)
    try:
        return from_json(Protocol, {"name": file.stem, **value} if isinstance(value, dict) else value, "protocol")
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def cut_protocol(dataset: Dataset, folder: Path, *, base: int, way: int, shot: int) -> Protocol:
    """Cut a data set's classes, in their order, into a base session and as many sessions of `way` as they fill."""
    for option, value in (("base", base), ("way", way), ("shot", shot)):
        if value < 1:
            raise InputError(f"--{option} is {value}; it must be a whole number >= 1.")
    sessions = (len(dataset.classes) - base) // way
    if sessions < 1:
        raise InputError(
            f"{folder} has {len(dataset.classes)} classes, which is too few for {base} base classes and a session of "
            f"{way}; lower --base or --way."
        )
    return Protocol(folder.name or "folder", str(folder), base_classes=base, sessions=sessions, way=way, shot=shot)
