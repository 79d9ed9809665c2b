"""Balance for any method: from each class's score is taken what the class gives its own images, or a part of it.

Base classes rest on hundreds of images and novel ones on a few, so they score their own images differently, and the
larger scores win too often. Of two classes, a threshold errs as often for the one as for the other where half of each
one's mean score of its own images is taken off (see `masil.learner`). That needs no more of a method than scores, so
every method is offered it: with its own scores of images that it did not learn from, and how much of it is chosen on
base classes that play novel, as for MASIL. `masil bench --methods teen,teen+balance` plays both.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from masil.errors import InputError, lookup
from masil.learner import AIMS, Rehearsed, mean_by_class, offsets, operating_points
from masil.methods.method import Geometry, LargestScore, Method, Queries, Samples, Task, state
from masil.methods.tuning import Chooses, rehearsals
from masil.protocol import hold_out, place_in_class

BALANCE_SUFFIX = "+balance"
SHARED = (
    "citation", "differs", "sees", "trains", "keeps", "needs_total", "needs_own_base", "on_shared", "head_only",
    "published",
)  # fmt: skip
FOLDS = 5  # shots of a class that are left out in turn, at most


@dataclass(kw_only=True, init=False)
class Balanced(LargestScore):
    """A method with its scores balanced; subclasses are made by `balanced` and say which method."""

    chooses = True
    of: ClassVar[type[Method]]
    aim: str = "accuracy"
    strength: float | None = None  # 1 is the threshold that errs as often for either class; chosen if not given
    given: dict[str, Any] = field(init=False)  # the method's parameters
    method: Method = field(init=False)
    expected: Tensor = state()  # [k], the mean score that a class gives its own images
    base: int = state()  # classes
    points: dict[str, float] = state()  # aim -> strength; `aim` can be changed after `fit`

    def __init__(self, *, aim: str = "accuracy", strength: float | None = None, **parameters: Any) -> None:
        lookup("aim", aim, AIMS)
        self.aim, self.strength, self.given, self.method = aim, strength, parameters, self.of(**parameters)

    @classmethod
    def accepts(cls) -> frozenset[str]:
        """Name the method's parameters and two more."""
        return cls.of.accepts() | {"aim", "strength"}

    def parameters(self, task: Task) -> dict[str, Any]:
        """Give those of the method and of the balance."""
        return {**self.method.parameters(task), "aim": self.aim, "strength": self.strength}

    def check_task(self, task: Task) -> None:
        """Refuse what the method refuses."""
        self.method.check_task(task)

    def fit(self, base: Samples, task: Task) -> None:
        """Take in the base session, find what its classes expect, and how much of that to take off."""
        self.method.fit(base, task)
        if self.method.scores(base.some(torch.tensor([0]))) is None:
            raise InputError(f"'{self.method.name}' gives no scores that could be balanced, only answers.")
        self.base = base.classes
        settled = self.given | (self.method.chosen if isinstance(self.method, Chooses) else {})  # not chosen again
        self.expected = expected_of_held_out(self.of(**settled), base, task)
        given = dict.fromkeys(AIMS, self.strength)
        self.points = operating_points(self._rehearse(settled, base, task)) if self.strength is None else given  # type: ignore[assignment]

    def learn(self, shots: Samples) -> None:
        """Take in a session; shots that are left out in turn say what its classes expect."""
        added = expected_of_shots(self.method, shots, len(self.expected), float(self.expected[: self.base].mean()))
        self.method.learn(shots)
        self.expected = torch.cat([self.expected, added])

    def scores(self, queries: Queries) -> Tensor:
        """Give the method's scores, less the chosen part of what each class expects."""
        return self._plain(queries) - self.points[self.aim] * self._offsets()

    def geometry(self, queries: Queries) -> Geometry | None:
        """Give that of the method."""
        return self.method.geometry(queries)

    def remarks(self) -> dict[str, Any]:
        """Add how much is taken off."""
        return {**self.method.remarks(), "strength of balance": self.points[self.aim]}

    def _offsets(self) -> Tensor:
        return offsets(self.expected, torch.arange(len(self.expected)) < self.base)

    def _plain(self, queries: Queries) -> Tensor:
        scores = self.method.scores(queries)
        assert scores is not None
        return scores

    def _rehearse(self, settled: dict[str, Any], base: Samples, task: Task) -> Iterator[Rehearsed]:
        """Let base classes play novel, and yield the scores that a strength is chosen by."""
        for rehearsal in rehearsals(base, task):
            trial = type(self)(strength=1.0, **settled)
            trial.fit(rehearsal.base, rehearsal.task)
            for sessions in rehearsal.draws:
                taught = copy.deepcopy(trial)
                for shots in sessions:
                    taught.learn(shots)
                yield Rehearsed(taught._plain(rehearsal.tests), taught._offsets(), rehearsal.tests.labels, taught.base)


def balanced(method: type[Method]) -> type[Method]:
    """Give a method that is another with its scores balanced."""
    about: dict[str, Any] = {
        "of": method,
        "name": method.name + BALANCE_SUFFIX,
        "title": f"{method.title} + balance",
        "__doc__": f"{method.title} with its scores balanced.",
        "__module__": __name__,
        **{key: getattr(method, key) for key in SHARED},
    }
    if method.base_session is not Method.base_session:  # where it is, the method takes the shared backbone
        about["base_session"] = lambda self, usual, protocol: self.method.base_session(usual, protocol)
    return final(dataclass(kw_only=True, init=False)(type(f"Balanced{method.__name__}", (Balanced,), about)))


def expected_of_held_out(method: Method, base: Samples, task: Task) -> Tensor:
    """Give the mean score [k] that base classes give images that were held out of their base session."""
    held = hold_out(base.labels, task.seed)
    method.fit(base.some(~held), task)
    return mean_by_class(own_scores(method, base.some(held)), base.labels[held], base.classes)


def expected_of_shots(method: Method, shots: Samples, known: int, otherwise: float) -> Tensor:
    """Give the mean score [k] that new classes give shots left out in turn; `otherwise` where a class has one."""
    codes = shots.labels - known
    folds = min(FOLDS, int(torch.bincount(codes).min()))
    if folds < 2:
        return torch.full((shots.classes - known,), otherwise)
    fold, own = place_in_class(codes) % folds, torch.empty(len(codes))
    for number in range(folds):
        taught = copy.deepcopy(method)
        taught.learn(shots.some(fold != number))
        own[fold == number] = own_scores(taught, shots.some(fold == number))
    return mean_by_class(own, codes, shots.classes - known)


def own_scores(method: Method, samples: Samples) -> Tensor:
    """Give the score [n] of each image by its own class."""
    scores = method.scores(samples)
    assert scores is not None
    return scores.gather(1, samples.labels[:, None])[:, 0].float()
