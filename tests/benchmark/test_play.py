from collections.abc import Iterator

import pytest
import torch

from masil.benchmark import Lesson, play
from masil.benchmark.separation import class_cosines, few_of_each
from masil.methods import DCosine, Method
from masil.protocol import Protocol

SHAPE = Protocol("small", "points", base_classes=4, sessions=2, way=2, shot=3)
CENTRES = torch.rand(8, 6, generator=torch.Generator().manual_seed(0))


def lessons() -> Iterator[Lesson]:
    for number, each in enumerate((5, 3, 3)):
        labels, truth = (torch.tensor(list(SHAPE.labels(number))).repeat(each), torch.arange(4 + 2 * number).repeat(4))
        yield Lesson(number, CENTRES[labels], labels, CENTRES[truth], truth)


class Recorder(Method):
    """Notes what each session brings and predicts the newest class."""

    citation = "none"

    def fit(self, activations: torch.Tensor, labels: torch.Tensor) -> None:
        self.taught = [labels.tolist()]

    def learn(self, activations: torch.Tensor, labels: torch.Tensor) -> None:
        self.taught.append(labels.tolist())

    def predict(self, activations: torch.Tensor) -> torch.Tensor:
        return torch.full((len(activations),), max(self.taught[-1]))


def test_a_method_sees_each_session_once_and_is_judged_by_all_classes_so_far() -> None:
    method = Recorder()
    played = list(play(SHAPE, lessons(), method))
    assert [sorted(set(labels)) for labels in method.taught] == [[0, 1, 2, 3], [4, 5], [6, 7]]
    assert [p.score.total for p in played] == [16, 24, 32]
    assert [p.score.accuracy for p in played] == [1 / 4, 1 / 6, 1 / 8]
    assert played[-1].confusion.tolist() == [[0, 0, 16], [0, 0, 8], [0, 0, 8]]
    assert played[-1].cosines == {}  # it compares no embeddings with class vectors


def test_separable_classes_are_all_right_and_lie_on_their_vectors() -> None:
    played = list(play(SHAPE, lessons(), DCosine()))
    assert [p.score.accuracy for p in played] == [1, 1, 1]
    assert [p.score.session for p in played] == [0, 1, 2]
    for session in played:
        for own, others in session.cosines.values():
            assert own == pytest.approx(1)
            assert 0 < others < 1


def test_cosines_are_means_over_pairs_of_classes() -> None:
    class Angles(Recorder):
        def geometry(self, activations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return activations, torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])  # the third is of a class to come

    shown = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 2.0]])
    own, others = class_cosines(Angles(), shown, torch.tensor([0, 0, 1])) or (0, 0)
    assert own == pytest.approx((0.6 + 1.0) / 2)
    assert others == pytest.approx((0.8 + 0.0) / 2)


def test_few_of_each_class_are_its_first() -> None:
    assert few_of_each(torch.tensor([1, 0, 1, 1, 0, 2]), most=2).tolist() == [0, 1, 2, 4, 5]
