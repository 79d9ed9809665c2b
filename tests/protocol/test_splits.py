import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from masil.data import Dataset, array_images
from masil.errors import DataError, InputError
from masil.protocol import (
    Protocol,
    class_folds,
    divide,
    first_of_each,
    held_out,
    hold_out,
    hold_out_count,
    place_in_class,
    pseudo_novel,
    sessions,
    some_of_each,
)

SHAPE = Protocol("small", "blocks", base_classes=8, sessions=1, way=2, shot=3)


def images(labels):
    return array_images(np.zeros((len(labels), 3, 2, 2), np.uint8), torch.tensor(labels))


def blocks():
    rng = np.random.default_rng(0)
    return Dataset(
        "blocks",
        tuple("abcdefghij"),
        train=images(rng.permutation(np.repeat(np.arange(10), 12)).tolist()),
        test=images(rng.permutation(np.repeat(np.arange(10), 4)).tolist()),
    )


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.floats(0.05, 0.95), st.integers(0, 5))
def test_a_held_out_split_is_a_partition_that_leaves_every_class_an_image(labels, share, seed):
    whole = images(labels)
    kept, held = held_out(whole, share, seed)
    assert sorted(kept.rows.tolist() + held.rows.tolist()) == list(range(len(labels)))
    assert set(kept.labels.tolist()) == set(labels)
    for label in set(labels):
        count, away = labels.count(label), int((held.labels == label).sum())
        assert away == (0 if count == 1 else min(max(1, round(share * count)), count - 1))


def test_pseudo_novel_classes_are_base_classes_and_no_test_image_can_be_reached():
    dataset = blocks()
    shape, played = pseudo_novel(SHAPE, dataset, sessions=2, way=1, share=0.25, seed=4)
    assert shape.base_classes == 6
    assert shape.order is not None
    assert set(shape.order) == set(range(8))
    assert played.train.source is played.test.source is dataset.train.source
    assert set(played.train.labels.tolist()) == set(played.test.labels.tolist()) == set(range(8))
    assert not set(played.train.rows.tolist()) & set(played.test.rows.tolist())
    assert torch.bincount(played.test.labels).tolist() == [3] * 8
    base, *novel = sessions(shape, played)
    assert not set(base.names) & {name for session in novel for name in session.names}


def test_pseudo_novel_classes_change_with_the_seed_alone():
    dataset = blocks()
    orders = [pseudo_novel(SHAPE, dataset, sessions=1, seed=seed)[0].order for seed in (0, 0, 1, 2)]
    assert orders[0] == orders[1]
    assert len(set(orders)) == 3


def test_pseudo_novel_on_a_pseudo_novel_protocol_stays_inside_its_base_classes():
    shape, played = pseudo_novel(SHAPE, blocks(), sessions=1, seed=0)
    inner, _ = pseudo_novel(shape, played, sessions=1, seed=0)
    assert set(inner.order or ()) == set((shape.order or ())[: shape.base_classes])


def test_impossible_splits_are_refused():
    with pytest.raises(
        InputError, match=r"8 pseudo-novel classes \(4 sessions × 2\) were asked for.* has 8 base classes"
    ):
        pseudo_novel(SHAPE, blocks(), sessions=4)
    with pytest.raises(InputError, match="held-out share is 1.0; it must lie between 0 and 1"):
        pseudo_novel(SHAPE, blocks(), sessions=1, share=1.0)
    with pytest.raises(InputError, match="held-out share is 0; it must lie between 0 and 1"):
        held_out(images([0, 1]), 0, 0)
    with pytest.raises(InputError, match="no images to hold a part of out"):
        held_out(images([]), 0.5, 0)


# Divisions of labels alone

LABELS = torch.tensor([0, 3, 2, 1]).repeat(10)
labels = st.lists(st.integers(0, 4), min_size=1, max_size=60).map(torch.tensor)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_the_streams_of_random_numbers_stay_as_they_are():
    """Figures depend on them."""
    assert hold_out(LABELS, 3).nonzero().flatten().tolist() == [0, 2, 17, 21, 24, 35, 38, 39]
    late = some_of_each(LABELS, lambda n: 5, seeded(3), among=torch.arange(40) >= 10).nonzero().flatten().tolist()
    assert late == [11, 12, 13, 14, 18, 22, 23, 24, 25, 28, 29, 31, 32, 33, 34, 35, 36, 37, 38, 39]
    assert [fold.tolist() for fold in class_folds(LABELS, 3, seeded(3))] == [[2, 3], [1], [0]]
    play = divide(LABELS, 3, 0.25, 3)
    assert (play.base, play.novel, play.shots.tolist()) == ((0, 1, 3), (2,), [6, 22, 38])
    assert play.test.tolist() == [0, 8, 10, 13, 21, 30, 31, 39]
    assert hold_out_count(LABELS, 2, seeded(5))[1].tolist() == [6, 11, 16, 20, 23, 25, 30, 37]


def test_places_and_first_ones_are_counted_within_the_class():
    assert place_in_class(torch.tensor([2, 0, 2, 1, 0, 2])).tolist() == [0, 0, 1, 0, 1, 2]
    assert first_of_each(torch.tensor([1, 0, 1, 1, 0, 2]), 2).tolist() == [0, 1, 2, 4, 5]
    assert place_in_class(torch.tensor([], dtype=torch.int64)).tolist() == []


@given(labels, st.integers(0, 9))
def test_a_fifth_of_each_class_is_held_out_and_never_all(y, seed):
    held = hold_out(y, seed)
    for label in y.unique().tolist():
        count = int((y == label).sum())
        assert int(held[y == label].sum()) == (0 if count < 3 else max(1, count // 5))


@given(labels, st.integers(1, 7), st.integers(0, 9))
def test_folds_are_a_partition_of_the_classes(y, folds, seed):
    parts = class_folds(y, folds, seeded(seed))
    assert len(parts) == min(folds, len(y.unique()))
    assert sorted(torch.cat(parts).tolist()) == y.unique().tolist()
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_number_of_each_class_is_held_out_while_two_are_left():
    kept, held = hold_out_count(LABELS, 8, seeded(0))
    assert torch.bincount(LABELS[held]).tolist() == [8] * 4
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(40))
    assert hold_out_count(LABELS, 0, seeded(0))[1].tolist() == []
    with pytest.raises(
        DataError, match="Class 0 has 10 images; with 9 held out fewer than 2 are left. Lower `holdout`"
    ):
        hold_out_count(LABELS, 9, seeded(0))


@given(st.integers(1, 5), st.integers(0, 9))
def test_a_play_teaches_novel_classes_by_shots_and_judges_all(shots, seed):
    play = divide(LABELS, shots, 0.5, seed)
    assert sorted([*play.base, *play.novel]) == [0, 1, 2, 3]
    assert torch.bincount(LABELS[play.test]).tolist() == [2] * 4
    assert set(LABELS[play.fit].tolist()) == set(play.base)
    assert {label: int((LABELS[play.shots] == label).sum()) for label in play.novel} == dict.fromkeys(play.novel, shots)
    used = torch.cat([play.fit, play.shots, play.test]).tolist()
    assert len(used) == len(set(used))


def test_plays_that_cannot_be_are_refused():
    with pytest.raises(InputError, match=r"A share 0.9 of 4 classes is 4 that play novel; at least 1 must, and 2 must"):
        divide(LABELS, 1, 0.9, 0)
    with pytest.raises(InputError, match="A class has 10 images, but to play it takes 10 to learn from and 1 to be"):
        divide(LABELS, 10, 0.25, 0)
