import pytest
import torch

from masil.benchmark import SessionData, play
from masil.benchmark.play import class_cosines, draw_data, session_data
from masil.data import Framing
from masil.methods import Checked, DCosine, Method, Queries, Samples, Task
from masil.protocol import Protocol, sessions

SHAPE = Protocol("small", "points", base_classes=4, sessions=2, way=2, shot=3)
CENTRES = torch.rand(8, 6, generator=torch.Generator().manual_seed(0))


def stream():
    for number, each in enumerate((5, 3, 3)):
        labels, truth = (torch.tensor(list(SHAPE.labels(number))).repeat(each), torch.arange(4 + 2 * number).repeat(4))
        yield SessionData(number, Samples(CENTRES[labels], labels=labels), Queries(CENTRES[truth]), truth)


def played(method):
    checked, (base, *rest) = Checked(method), stream()
    checked.fit(base.taught, Task(SHAPE))
    return list(play(SHAPE, [base, *rest], checked, 1.5))


class Recorder(Method):
    """Notes what each session brings and predicts the newest class."""

    name = title = "recorder"
    citation = "none"

    def fit(self, base, task):
        self.taught = [base.labels.tolist()]

    def learn(self, shots):
        self.taught.append(shots.labels.tolist())

    def predict(self, queries):
        return torch.full((len(queries),), max(self.taught[-1]))


def test_a_method_sees_each_session_once_and_is_judged_by_all_classes_so_far():
    method = Recorder()
    results = played(method)
    assert [sorted(set(labels)) for labels in method.taught] == [[0, 1, 2, 3], [4, 5], [6, 7]]
    assert [result.score.total for result in results] == [16, 24, 32]
    assert [result.score.accuracy for result in results] == [1 / 4, 1 / 6, 1 / 8]
    assert results[-1].confusion.tolist() == [[0, 0, 16], [0, 0, 8], [0, 0, 8]]
    assert results[0].learn_seconds == 1.5  # the base session was taught before
    assert results[-1].cosines == {}  # it compares no embeddings with class vectors


def test_separable_classes_are_all_right_and_lie_on_their_vectors():
    results = played(DCosine())
    assert [result.score.accuracy for result in results] == [1, 1, 1]
    assert [result.score.session for result in results] == [0, 1, 2]
    for session in results:
        for own, others in session.cosines.values():
            assert own == pytest.approx(1)
            assert 0 < others < 1


MANY = [[1.0, 0.0]] * 99 + [[0.0, 99.0]] * 2  # of class 0, of whose hundred images the last differs, and of class 1


@pytest.mark.parametrize(
    ("shown", "labels", "cosines"),
    [
        ([[3.0, 4.0], [3.0, 4.0], [0.0, 2.0]], [0, 0, 1], ((0.6 + 1.0) / 2, (0.8 + 0.0) / 2)),
        (MANY, [0] * 100 + [1], ((0.5**0.5 + 1) / 2, 0.5**0.5 / 2)),  # the mean of class 0 is (.99, .99)
    ],
)
def test_cosines_are_means_over_all_images_and_pairs_of_classes(shown, labels, cosines):
    class Angles(Recorder):
        def geometry(self, queries):
            return queries.activations, torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])  # one is to come

    activations, truth, method = torch.tensor(shown), torch.tensor(labels), Checked(Angles())
    method.fit(Samples(activations, labels=truth), Task(SHAPE))
    assert class_cosines(method, activations, truth) == pytest.approx(cosines)


def test_the_figures_of_a_session_are_of_all_images_taught_so_far_and_of_all_test_images():
    draw = torch.Generator().manual_seed(1)

    def scattered(number, each):
        """Sessions with many images of each class, no two alike."""
        labels, truth = torch.tensor(list(SHAPE.labels(number))).repeat(each), torch.arange(4 + 2 * number).repeat(50)
        rows = [CENTRES[at] + 0.3 * torch.rand(len(at), 6, generator=draw) for at in (labels, truth)]
        return SessionData(number, Samples(rows[0], labels=labels), Queries(rows[1]), truth)

    stream = [scattered(number, each) for number, each in enumerate((60, 3, 3))]
    checked = Checked(DCosine())
    checked.fit(stream[0].taught, Task(SHAPE))
    *_, last = play(SHAPE, stream, checked, 0.0)
    parts = [(data.taught.activations, data.taught.labels) for data in stream]
    assert last.cosines["train"] == class_cosines(checked, *map(torch.cat, zip(*parts, strict=True)))
    assert last.cosines["test"] == class_cosines(checked, stream[-1].tests.activations, stream[-1].truth)


FRAMING = Framing(4, 4)


def test_a_draw_is_dealt_out_as_the_sessions_of_the_protocol(setting):
    drawn = draw_data(setting, [3])[3]
    expected = sessions(setting.protocol, setting.dataset, 3)
    for session, data in zip(expected, session_data(setting.protocol, drawn), strict=True):
        assert data.number == session.number
        for images, shown, labels in (
            (session.train, data.taught, data.taught.labels),
            (session.test, data.tests, data.truth),
        ):
            pixels = images.load(slice(None), FRAMING)
            assert torch.equal(labels, images.labels)
            assert torch.equal(shown.activations, pixels.flatten(1) / 255)
            assert torch.equal(shown.images.load(slice(None), FRAMING), pixels)


def test_draws_share_what_is_not_theirs(setting):
    found = draw_data(setting, [0, 1])
    assert setting.store.asked == [24, 32, 12, 12]
    assert found[0].base is found[1].base
    assert found[0].tests is found[1].tests
    assert not (found[0].shots == found[1].shots).all()
