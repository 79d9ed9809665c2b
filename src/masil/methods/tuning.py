"""Parameters chosen on base classes that play novel ones: never on test data, and by every method in the same way.

A parameter that a method lists under `tried` and nobody has given a value is chosen in the base session. Some base
classes are held out, then taught in sessions like those to come, and images that nothing was learnt from decide. The
share that plays novel is that of the protocol, so what decides is the accuracy that the field ranks by. To a backbone
that was trained on them they are not new; where the task brings rehearsals on backbones trained without them, these
decide instead.
"""

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from masil.methods.method import Method, Rehearsal, Samples, Task, state
from masil.protocol import rehearse
from masil.training import Trained


@dataclass(kw_only=True)
class Chooses(Method):
    """A method some of whose parameters are chosen on base classes that play novel ones, where they are None."""

    chooses = True
    tried: ClassVar[Mapping[str, Sequence[Any]]] = {}  # values of each; the first is taken where nothing can be played
    tried_in_fit: ClassVar[bool] = False  # whether the base session depends on them
    rehearsed: ClassVar[Mapping[str, Any]] = {}  # other parameters, as rehearsals have them
    chosen: dict[str, Any] = state()

    def value(self, name: str) -> Any:
        """Give a parameter: what somebody gave it, or what was chosen."""
        given = getattr(self, name)
        return self.chosen[name] if given is None else given

    def choose(self, base: Samples, task: Task) -> None:
        """Choose what is open; `fit` calls it first."""
        self.chosen = choose(self, base, task)

    def remarks(self) -> dict[str, Any]:
        """Say what was chosen."""
        return {**super().remarks(), **({"chosen": self.chosen} if self.chosen else {})}


def choose(method: Chooses, base: Samples, task: Task) -> dict[str, Any]:
    """Give the values, among those tried, with the best accuracy after the last of the rehearsed sessions."""
    names = [name for name in method.tried if getattr(method, name) is None]
    choices = [dict(zip(names, values, strict=True)) for values in itertools.product(*map(method.tried.get, names))]  # type: ignore[arg-type]
    if len(choices) == 1:
        return choices[0]
    right = [0.0] * len(choices)
    for rehearsal in rehearsals(base, task):
        for index, learnt in enumerate(played(method, choices, rehearsal)):
            answers = learnt.predict(rehearsal.tests)
            right[index] += float((answers == rehearsal.tests.labels).double().mean())
    return choices[max(range(len(choices)), key=right.__getitem__)]


def played(method: Chooses, choices: Sequence[Mapping[str, Any]], rehearsal: Rehearsal) -> Iterator[Method]:
    """Yield the method with each choice of parameters after a rehearsal, of one draw: some take long."""
    fitted: Method | None = None
    for choice in choices:
        if fitted is None or method.tried_in_fit:
            fitted = replace(method, **{**method.rehearsed, **choice})
            fitted.fit(rehearsal.base, rehearsal.task)
        learnt = copy.deepcopy(fitted)
        for name, value in choice.items():
            setattr(learnt, name, value)
        for shots in rehearsal.draws[0]:
            learnt.learn(shots)
        yield learnt


def rehearsals(base: Samples, task: Task) -> Iterator[Rehearsal]:
    """Yield those of the task, else divisions of its base session by its seed; none where classes or images are few."""
    if task.rehearsals:
        yield from task.rehearsals
        return
    protocol = task.protocol
    for play in rehearse(base.labels, protocol.shot, protocol.novel_share, task.seed):
        order = torch.tensor([*play.base, *play.novel])
        renamed, part = replace(base, labels=order.argsort()[base.labels]), len(play.base)
        way = min(protocol.way, len(play.novel))
        session = (renamed.labels[play.shots] - part) // way
        sessions = tuple(renamed.some(play.shots[session == number]) for number in range(-(-len(play.novel) // way)))
        smaller = replace(protocol, base_classes=part, way=way, sessions=len(sessions), order=None)
        told = replace(task, protocol=smaller, trained=_reordered(task.trained, order, part))
        yield Rehearsal(renamed.some(play.fit), (sessions,), renamed.some(play.test), told)


def _reordered(trained: Trained | None, order: Tensor, part: int) -> Trained | None:
    """Give a base session as if its first `part` classes in this order had been all."""
    if trained is None:
        return None
    frame = trained.frame
    if frame is not None:
        frame = torch.cat([frame[order], frame[len(order) :]])
    return replace(trained, class_vectors=trained.class_vectors[order[:part]], frame=frame, names=None)
