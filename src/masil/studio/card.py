"""The model card, and what else of a learner is told as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from masil import __version__
from masil.learner import Event, Masil, Memory, SessionRecord
from masil.studio.answers import Allowed, Card, Count, Known, Line, Neighbour, Session
from masil.studio.limits import Limits


def card(model: Masil, name: str, limits: Limits) -> Card:
    """Say what the model is, what it knows, and how it came to know it."""
    backbone, base, memory = model.encoder_.backbone, model.base_, model.memory_
    assert backbone is not None
    return Card(
        name=name,
        masil=__version__,
        revision=len(model.log_),
        backbone=backbone.name,
        image_side=backbone.framing.crop,
        features=base.features,
        embedding=base.embedding.form,
        concepts=len(base.bank.concepts),
        temperature=base.temperature,
        memory_bytes=memory.nbytes,
        bytes_per_class=memory.bytes_per_class,
        classes=_known(model),
        sessions=[session(record) for record in model.sessions_],
        log=[_line(event) for event in model.log_],
        limits=Allowed(**{name: getattr(limits, name) for name in Allowed.model_fields}),
    )


def session(record: SessionRecord) -> Session:
    """Give a session's record as an answer."""
    return Session(
        number=record.number, when=record.when, who=record.who, note=record.note, classes=_counts(record.images)
    )


def neighbours(memory: Memory, place: int, count: int) -> list[Neighbour]:
    """Give the classes whose vectors have the largest cosine to that of the class at `place`."""
    cosines = memory.vectors @ memory.vectors[place]
    cosines[place] = -torch.inf
    nearest = cosines.topk(min(count, len(cosines) - 1))
    return _neighbours(memory, nearest.indices.tolist(), nearest.values.tolist())


def _known(model: Masil) -> list[Known]:
    memory = model.memory_
    first: dict[str | int, int] = {}
    for record in model.sessions_:
        for label in record.classes:
            first.setdefault(label, record.number)
    nearest: Sequence[Neighbour | None] = [None] * len(memory.labels)
    if len(memory.labels) > 1:
        cosines = memory.vectors @ memory.vectors.T
        best = cosines.fill_diagonal_(-torch.inf).max(1)
        nearest = _neighbours(memory, best.indices.tolist(), best.values.tolist())
    rows = zip(memory.labels, memory.counts.tolist(), nearest, strict=True)
    return [
        Known(label=str(label), images=images, session=first[label], nearest=other) for label, images, other in rows
    ]


def _neighbours(memory: Memory, places: list[int], cosines: list[float]) -> list[Neighbour]:
    pairs = zip(places, cosines, strict=True)
    return [Neighbour(label=str(memory.labels[place]), cosine=cosine) for place, cosine in pairs]


def _line(event: Event) -> Line:
    return Line(
        what=event.what, when=event.when, who=event.who, session=event.session, note=event.note,
        classes=_counts(event.images),
    )  # fmt: skip


def _counts(images: Iterable[tuple[str | int, int]]) -> list[Count]:
    return [Count(label=str(label), images=count) for label, count in images]
