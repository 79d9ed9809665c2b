"""Our reading of MgSvF: the split into frequencies, and what it holds still."""

import pytest
import torch
from torch.nn import functional

from masil.collapse import class_means
from masil.methods import make
from masil.methods.mgsvf import change_by_frequency, cosine_transform, frequency_groups


@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_the_transform_is_orthonormal_and_its_first_row_is_the_mean(n: int) -> None:
    rows = cosine_transform(n)
    torch.testing.assert_close(rows @ rows.T, torch.eye(n), atol=1e-6, rtol=0)
    torch.testing.assert_close(rows[0], torch.full((n,), n**-0.5))


@pytest.mark.parametrize("shape", [(4, 4), (7, 7), (2, 3), (1, 1)])
def test_the_frequencies_are_split_into_groups_that_add_up_to_the_whole_change(shape: tuple[int, int]) -> None:
    groups = frequency_groups(*shape, 4)
    assert int(groups[0, 0]) == 0
    sizes = torch.bincount(groups.flatten(), minlength=4)
    assert int(sizes.sum()) == shape[0] * shape[1]
    assert int(sizes.max() - sizes.min()) <= 1
    draw = torch.Generator().manual_seed(0)
    before, after = torch.rand(2, 5, 6, *shape, generator=draw)
    changes = change_by_frequency(before, after, 4)
    torch.testing.assert_close(changes.sum(), (after - before).square().sum() / before.square().sum())
    assert bool((changes >= 0).all())


def test_a_change_of_all_places_alike_is_of_the_lowest_frequencies_alone() -> None:
    before = torch.rand(3, 6, 4, 4, generator=torch.Generator().manual_seed(0))
    changes = change_by_frequency(before, before + 0.5, 4)
    assert float(changes[0]) > 0.1
    torch.testing.assert_close(changes[1:], torch.zeros(3), atol=1e-6, rtol=0)


@pytest.mark.usefixtures("one_thread")
def test_holding_low_frequencies_slows_them_more_than_high_ones(trained_images, task, trained_backbone) -> None:
    base, shots = trained_images(range(5), 8, 1), trained_images(range(5, 7), 5, 2)

    def changes(weight: float) -> torch.Tensor:
        method = make("mgsvf", weight=weight, fading=0.1, lr=0.02)
        method.fit(base, task(5, 2, backbone=trained_backbone))
        entering = method.frozen(shots.images)
        before = method.block.maps(entering)
        method.learn(shots)
        return change_by_frequency(before, method.block.maps(entering), 4)

    free, held = changes(0.0), changes(10.0)
    assert float(held[0]) < float(free[0])
    lowest, highest = float(held[0] / free[0]), float(held[3] / free[3])
    assert lowest / highest < 0.8  # .43 to .61 on five draws under three arithmetics


@pytest.mark.usefixtures("one_thread")
def test_without_a_share_the_slow_space_decides_and_it_never_moves(trained_images, task, trained_backbone) -> None:
    base, shots, tests = (
        trained_images(classes, each, each) for classes, each in ((range(5), 8), (range(5, 7), 5), (range(7), 6))
    )
    method = make("mgsvf", share=0.0, lr=0.05)
    method.fit(base, task(5, 2, backbone=trained_backbone))
    method.learn(shots)
    unit = [functional.normalize(part.activations) for part in (base, shots, tests)]
    means = torch.cat([class_means(unit[0], base.labels), class_means(unit[1], shots.labels, 5)])
    torch.testing.assert_close(
        method.scores(tests).square(), torch.cdist(unit[2], means).square(), atol=1e-4, rtol=1e-3
    )
    assert not torch.equal(method.block.block.conv1.weight, trained_backbone.get_submodule("layer3")[-1].conv1.weight)
