"""What nobody has chosen is chosen on base classes that play novel ones, and on nothing else."""

from dataclasses import dataclass, replace
from typing import final

import pytest
import torch
from torch import Tensor

from masil.collapse import class_means
from masil.methods import NearestVector, Queries, Rehearsal, Samples, Task
from masil.methods.tuning import Chooses, rehearsals
from masil.protocol import Protocol

K, EACH, D = 10, 12, 6
PROTOCOL = Protocol("rows", "rows", base_classes=K, sessions=2, way=3, shot=4)


def rows() -> Samples:
    labels = torch.arange(K).repeat(EACH)
    centres = 3 * torch.rand(K, D, generator=torch.Generator().manual_seed(0))
    noise = 0.3 * torch.randn(len(labels), D, generator=torch.Generator().manual_seed(1))
    return Samples((centres[labels] + noise).relu(), labels=labels)


def test_a_rehearsal_is_the_protocol_made_smaller_and_no_image_plays_two_parts() -> None:
    base = rows()
    found = list(rehearsals(base, Task(PROTOCOL)))
    assert len(found) == 2
    for rehearsal in found:
        told = rehearsal.task.protocol
        assert told.base_classes == 6  # of ten, as ten of sixteen
        assert told.classes >= K
        assert told.shot == PROTOCOL.shot
        assert rehearsal.base.labels.unique().tolist() == list(range(6))
        assert [session.labels.unique().tolist() for session in rehearsal.draws[0]] == [[6, 7, 8], [9]]
        assert all(torch.bincount(session.labels)[6:].max() == PROTOCOL.shot for session in rehearsal.draws[0])
        assert rehearsal.tests.labels.unique().tolist() == list(range(K))
        parts = [rehearsal.base, *rehearsal.draws[0], rehearsal.tests]
        used = torch.cat([part.activations for part in parts])
        assert len(used.unique(dim=0)) == len(used)
        assert all(bool((base.activations == row).all(1).any()) for row in used)


def test_classes_keep_their_images_under_their_new_labels() -> None:
    base = rows()
    rehearsal = next(rehearsals(base, Task(PROTOCOL)))
    means = class_means(base.activations, base.labels)
    for part in (rehearsal.base, *rehearsal.draws[0]):
        for label in part.labels.unique():
            of_class = part.activations[part.labels == label]
            true = base.labels[(base.activations == of_class[0]).all(1)]
            tests = rehearsal.tests.activations[rehearsal.tests.labels == label]
            assert (tests - means[true]).norm(dim=1).max() < 3  # centres lie further apart


def test_nothing_is_rehearsed_where_images_or_classes_are_too_few() -> None:
    base = rows()
    assert not list(rehearsals(base, Task(replace(PROTOCOL, shot=EACH))))
    two = Samples(base.activations[base.labels < 2], labels=base.labels[base.labels < 2])
    assert not list(rehearsals(two, Task(replace(PROTOCOL, base_classes=2))))


@final
@dataclass(kw_only=True)
class Turned(Chooses, NearestVector):
    """New classes are named rightly where `turn` is 0, and not where it is something else."""

    name, title, citation = "turned", "Turned", "Nobody, 2026"
    tried = {"turn": (2, 1, 0)}  # noqa: RUF012
    turn: int | None = None

    def fit(self, base: Samples, task: Task) -> None:
        self.choose(base, task)
        self.vectors = class_means(base.activations, base.labels)

    def learn(self, shots: Samples) -> None:
        new = class_means(shots.activations, shots.labels, len(self.vectors)).roll(self.value("turn"), 1)
        self.vectors = torch.cat([self.vectors, new])

    def embed(self, queries: Queries) -> Tensor:
        return queries.activations


def test_the_value_that_names_most_images_rightly_is_chosen_and_noted() -> None:
    method = Turned()
    method.fit(rows(), Task(PROTOCOL))
    assert method.chosen == {"turn": 0}
    assert method.turn is None  # it stays a parameter that nobody gave
    assert method.remarks() == {"chosen": {"turn": 0}}


def test_rehearsals_that_the_task_brings_decide_in_place_of_its_own_classes() -> None:
    base = rows()
    told = next(rehearsals(base, Task(PROTOCOL)))
    novel = told.draws[0][0]  # labels 6, 7, 8; a turn of 1 puts them right where they are given as 7, 8, 6
    swapped = Samples(novel.activations, labels=torch.where(novel.labels == 6, 8, novel.labels - 1))
    rehearsal = Rehearsal(told.base, ((swapped,), (swapped,)), told.tests, told.task)
    assert list(rehearsals(base, Task(PROTOCOL, rehearsals=(rehearsal,)))) == [rehearsal]
    method = Turned()
    method.fit(base, Task(PROTOCOL, rehearsals=(rehearsal,)))
    assert method.chosen == {"turn": 1}  # where its own classes would say 0


@pytest.mark.parametrize(("given", "shot", "expected"), [(1, 4, 1), (None, EACH, 2)])
def test_a_value_that_was_given_stays_and_the_first_is_taken_where_nothing_can_be_played(
    given: int | None, shot: int, expected: int
) -> None:
    method = Turned(turn=given)
    method.fit(rows(), Task(replace(PROTOCOL, shot=shot)))
    assert method.value("turn") == expected
