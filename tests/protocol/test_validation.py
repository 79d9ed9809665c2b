import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from masil.data import ArrayImages, Dataset
from masil.errors import InputError
from masil.protocol import Protocol, held_out, pseudo_novel, sessions

SHAPE = Protocol("small", "blocks", base_classes=8, sessions=1, way=2, shot=3)


def images(labels: list[int]) -> ArrayImages:
    return ArrayImages(np.zeros((len(labels), 3, 2, 2), np.uint8), torch.tensor(labels))


def blocks() -> Dataset:
    rng = np.random.default_rng(0)
    return Dataset(
        "blocks",
        tuple("abcdefghij"),
        train=images(rng.permutation(np.repeat(np.arange(10), 12)).tolist()),
        test=images(rng.permutation(np.repeat(np.arange(10), 4)).tolist()),
    )


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.floats(0.05, 0.95), st.integers(0, 5))
def test_a_held_out_split_is_a_partition_that_leaves_every_class_an_image(
    labels: list[int], share: float, seed: int
) -> None:
    whole = images(labels)
    kept, held = held_out(whole, share, seed)
    assert sorted(kept.rows.tolist() + held.rows.tolist()) == list(range(len(labels)))
    assert set(kept.labels.tolist()) == set(labels)
    for label in set(labels):
        count, away = labels.count(label), int((held.labels == label).sum())
        assert away == (0 if count == 1 else min(max(1, round(share * count)), count - 1))


def test_pseudo_novel_classes_are_base_classes_and_no_test_image_can_be_reached() -> None:
    dataset = blocks()
    shape, played = pseudo_novel(SHAPE, dataset, sessions=2, way=1, share=0.25, seed=4)
    assert shape.base_classes == 6
    assert shape.order is not None
    assert set(shape.order) == set(range(8))
    assert played.train.pixels is dataset.train.pixels
    assert played.test.pixels is dataset.train.pixels
    assert set(played.train.labels.tolist()) == set(played.test.labels.tolist()) == set(range(8))
    assert not set(played.train.rows.tolist()) & set(played.test.rows.tolist())
    assert torch.bincount(played.test.labels).tolist() == [3] * 8
    base, *novel = sessions(shape, played)
    assert not set(base.names) & {name for session in novel for name in session.names}


def test_pseudo_novel_classes_change_with_the_seed_alone() -> None:
    dataset = blocks()
    orders = [pseudo_novel(SHAPE, dataset, sessions=1, seed=seed)[0].order for seed in (0, 0, 1, 2)]
    assert orders[0] == orders[1]
    assert len(set(orders)) == 3


def test_pseudo_novel_on_a_pseudo_novel_protocol_stays_inside_its_base_classes() -> None:
    shape, played = pseudo_novel(SHAPE, blocks(), sessions=1, seed=0)
    inner, _ = pseudo_novel(shape, played, sessions=1, seed=0)
    assert set(inner.order or ()) == set((shape.order or ())[: shape.base_classes])


def test_impossible_splits_are_refused() -> None:
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
