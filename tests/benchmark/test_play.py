from collections.abc import Iterator

import pytest
import torch

from masil.benchmark import SessionData, SessionResult, play
from masil.benchmark.separation import class_cosines, few_of_each
from masil.methods import Checked, DCosine, Method, Queries, Samples, Task
from masil.protocol import Protocol

SHAPE = Protocol("small", "points", base_classes=4, sessions=2, way=2, shot=3)
CENTRES = torch.rand(8, 6, generator=torch.Generator().manual_seed(0))


def stream() -> Iterator[SessionData]:
    for number, each in enumerate((5, 3, 3)):
        labels, truth = (torch.tensor(list(SHAPE.labels(number))).repeat(each), torch.arange(4 + 2 * number).repeat(4))
        yield SessionData(number, Samples(CENTRES[labels], labels=labels), Queries(CENTRES[truth]), truth)


def played(method: Method) -> list[SessionResult]:
    checked, (base, *rest) = Checked(method), stream()
    checked.fit(base.taught, Task(SHAPE))
    return list(play(SHAPE, [base, *rest], checked, 1.5))


class Recorder(Method):
    """Notes what each session brings and predicts the newest class."""

    name = title = "recorder"
    citation = "none"

    def fit(self, base: Samples, task: Task) -> None:
        self.taught = [base.labels.tolist()]

    def learn(self, shots: Samples) -> None:
        self.taught.append(shots.labels.tolist())

    def predict(self, queries: Queries) -> torch.Tensor:
        return torch.full((len(queries),), max(self.taught[-1]))


def test_a_method_sees_each_session_once_and_is_judged_by_all_classes_so_far() -> None:
    method = Recorder()
    results = played(method)
    assert [sorted(set(labels)) for labels in method.taught] == [[0, 1, 2, 3], [4, 5], [6, 7]]
    assert [result.score.total for result in results] == [16, 24, 32]
    assert [result.score.accuracy for result in results] == [1 / 4, 1 / 6, 1 / 8]
    assert results[-1].confusion.tolist() == [[0, 0, 16], [0, 0, 8], [0, 0, 8]]
    assert results[0].learn_seconds == 1.5  # the base session was taught before
    assert results[-1].cosines == {}  # it compares no embeddings with class vectors


def test_separable_classes_are_all_right_and_lie_on_their_vectors() -> None:
    results = played(DCosine())
    assert [result.score.accuracy for result in results] == [1, 1, 1]
    assert [result.score.session for result in results] == [0, 1, 2]
    for session in results:
        for own, others in session.cosines.values():
            assert own == pytest.approx(1)
            assert 0 < others < 1


def test_cosines_are_means_over_pairs_of_classes() -> None:
    class Angles(Recorder):
        def geometry(self, queries: Queries) -> tuple[torch.Tensor, torch.Tensor]:
            return queries.activations, torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])  # one is to come

    shown = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 2.0]])
    labels = torch.tensor([0, 0, 1])
    method = Checked(Angles())
    method.fit(Samples(shown, labels=labels), Task(SHAPE))
    own, others = class_cosines(method, shown, labels) or (0, 0)
    assert own == pytest.approx((0.6 + 1.0) / 2)
    assert others == pytest.approx((0.8 + 0.0) / 2)


def test_few_of_each_class_are_its_first() -> None:
    assert few_of_each(torch.tensor([1, 0, 1, 1, 0, 2]), most=2).tolist() == [0, 1, 2, 4, 5]
