from dataclasses import replace

import numpy as np
import pytest
import torch

from masil.data import Dataset, array_images
from masil.errors import DataError
from masil.protocol import PROTOCOLS, Protocol, sessions

SHAPE = Protocol("small", "blocks", base_classes=4, sessions=2, way=3, shot=2)


def blocks(classes=10, train=6, test=3, seed=0):
    """Images whose first pixel is their position and whose labels are shuffled, so that any mix-up shows."""

    def part(each):
        labels = torch.arange(classes).repeat_interleave(each)[
            torch.randperm(classes * each, generator=torch.Generator().manual_seed(seed))
        ]
        pixels = np.zeros((len(labels), 3, 4, 4), np.uint8)
        pixels[:, 0, 0, 0] = np.arange(len(labels))
        return array_images(pixels, labels)

    return Dataset("blocks", tuple(f"class {i}" for i in range(classes)), part(train), part(test))


def test_a_session_holds_its_own_training_data_and_the_test_data_of_every_class_seen():
    dataset = blocks()
    for session in sessions(SHAPE, dataset, draw=3):
        assert set(session.train.labels.tolist()) == set(session.labels) == set(SHAPE.labels(session.number))
        assert len(session.train) == (4 * 6 if session.number == 0 else 3 * 2)
        seen = list(SHAPE.seen(session.number))
        assert sorted(session.test.rows.tolist()) == [
            i for i, y in enumerate(dataset.test.labels.tolist()) if y in seen
        ]
        for images, source in ((session.train, dataset.train), (session.test, dataset.test)):
            assert torch.equal(images.labels, source.labels[images.rows])


def test_draws_repeat_differ_and_do_not_depend_on_the_other_classes():
    dataset = blocks()

    def shots(draw, shape=SHAPE):
        found: dict[int, list[int]] = {}
        for session in list(sessions(shape, dataset, draw))[1:]:
            for label in session.labels:
                found[label] = sorted(session.train.rows[session.train.labels == label].tolist())
        return found

    assert shots(1) == shots(1) != shots(2)
    wider = replace(SHAPE, sessions=1, way=6)
    assert shots(1, wider) == shots(1)


def test_an_order_renumbers_the_classes_in_the_order_they_are_taught():
    dataset = blocks()
    order = (9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
    for session in sessions(replace(SHAPE, order=order), dataset, draw=0):
        assert session.names == tuple(f"class {order[label]}" for label in session.labels)
        truth = dataset.test.labels[session.test.rows]
        assert torch.equal(session.test.labels, 9 - truth)


def test_when_no_draw_is_named_the_standard_shots_are_taken_and_without_lists_those_of_draw_0():
    def shots(dataset, draw=None):
        return [session.train.rows.tolist() for session in sessions(SHAPE, dataset, draw)][1:]

    dataset = blocks()
    listed = {
        number: torch.cat([(dataset.train.labels == y).nonzero().flatten()[-2:] for y in SHAPE.labels(number)])
        for number in (1, 2)
    }
    with_lists = replace(dataset, shots=listed)
    assert shots(with_lists) == [listed[1].tolist(), listed[2].tolist()]
    assert shots(with_lists) != shots(with_lists, 0) == shots(dataset) == shots(dataset, 0)


def test_lists_that_break_the_protocol_are_refused():
    dataset = blocks()
    of = [(dataset.train.labels == y).nonzero().flatten() for y in range(10)]
    good = torch.cat([of[y][:2] for y in (4, 5, 6)])

    def play(first):
        list(sessions(SHAPE, replace(dataset, shots={1: first}), draw=None))

    with pytest.raises(
        DataError, match="shots of session 1 hold 'class 0', which is not one of the session's classes 4 … 6"
    ):
        play(torch.cat([good, of[0][:1]]))
    with pytest.raises(DataError, match="session 1 hold 1 images of 'class 6', but the protocol takes 2"):
        play(good[:-1])
    with pytest.raises(DataError, match="no standard shots for session 2; choose them with `draw`"):
        play(good)


def test_classes_that_are_not_there_or_return_are_refused():
    with pytest.raises(DataError, match=r"needs 13 classes \(4 \+ 3 × 3\) but 'blocks' has 10"):
        sessions(replace(SHAPE, sessions=3), blocks())
    with pytest.raises(DataError, match=r"asks for class 10, but 'blocks' has 0 … 9"):
        sessions(replace(SHAPE, order=(0, 1, 2, 3, 4, 5, 6, 7, 8, 10)), blocks())
    twice = replace(blocks(), classes=(*(f"class {i}" for i in range(8)), "class 4", "class 9"))
    with pytest.raises(DataError, match="'blocks' has two classes called 'class 4'; a class comes in one session"):
        sessions(SHAPE, twice, draw=0)


def test_a_class_with_too_few_images_is_named_before_the_first_session():
    with pytest.raises(
        DataError, match="Session 1 needs 7 training images of 'class 4' but there are only 6. Add some"
    ):
        sessions(replace(SHAPE, shot=7), blocks())
    short = blocks()
    short = replace(short, train=short.train.subset((short.train.labels != 2).nonzero().flatten()))
    with pytest.raises(DataError, match="Session 0 needs 1 training image of 'class 2' but there is none"):
        sessions(SHAPE, short)
    untested = blocks()
    untested = replace(untested, test=untested.test.subset((untested.test.labels != 5).nonzero().flatten()))
    with pytest.raises(DataError, match="Session 1 teaches 'class 5', but there is no test image of it"):
        sessions(SHAPE, untested)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "base", "shots", "test"),
    [
        ("cifar100", 30_000, 25, [6000, *[500] * 8]),
        ("cub200", 3_000, 50, [2864, 279, 287, 298, 300, 298, 288, 297, 295, 288, 300]),
    ],
)
def test_the_standard_protocols_have_the_published_sizes(name, base, shots, test, data_folder):
    from masil.data import load

    dataset = load(name, data_folder)
    stream = list(sessions(PROTOCOLS[name], dataset))
    assert [len(s.train) for s in stream] == [base] + [shots] * PROTOCOLS[name].sessions
    assert [len(s.test) for s in stream] == np.cumsum(test).tolist()
    for session in stream[1:]:
        counts = torch.bincount(session.train.labels, minlength=PROTOCOLS[name].classes)
        assert counts[list(session.labels)].tolist() == [5] * PROTOCOLS[name].way
        assert torch.equal(dataset.shots[session.number], dataset.shots[session.number].unique())
