"""D-DeepEMD: its transport against a reference, and what a comparison of sets must not depend on."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from masil.errors import InputError
from masil.methods.deep_emd import place_weights, transport_plans, transport_scores


def problems(count: int, m: int, seed: int = 0):
    draw = torch.Generator().manual_seed(seed)
    rows, columns = (torch.rand(count, m, generator=draw, dtype=torch.float64) + 0.01 for _ in range(2))
    costs = 2 * torch.rand(count, m, m, generator=draw, dtype=torch.float64)
    return costs, m * rows / rows.sum(1, keepdim=True), m * columns / columns.sum(1, keepdim=True)


def test_plans_are_those_of_a_reference_and_nearly_as_cheap_as_can_be() -> None:
    ot = pytest.importorskip("ot", reason="POT is not installed")
    m, epsilon = 9, 0.05
    costs, rows, columns = problems(12, m)
    plans = transport_plans(costs, rows, columns, epsilon=epsilon, rounds=5000)
    for plan, cost, row, column in zip(plans, *map(torch.Tensor.numpy, (costs, rows, columns)), strict=True):
        reference = ot.sinkhorn(row / m, column / m, cost, epsilon, method="sinkhorn_log", numItermax=20000)
        np.testing.assert_allclose(plan.numpy(), m * reference, atol=1e-5)
        cheapest = m * ot.emd2(row / m, column / m, cost)
        # F minimises ⟨C, F⟩ − ε H(F), and entropies of plans with these sums differ by m log m at most.
        assert cheapest - 1e-6 <= float((plan * torch.from_numpy(cost)).sum()) <= cheapest + epsilon * m * math.log(m)


def test_plans_of_few_rounds_are_flows() -> None:
    costs, rows, columns = (part.float() for part in problems(40, 9, seed=1))
    plans = transport_plans(costs, rows, columns)
    assert bool((plans >= 0).all())
    torch.testing.assert_close(plans.sum(1), columns)
    assert float((plans.sum(2) - rows).abs().max()) < 0.1  # .01: 50 rounds, not the limit
    with pytest.raises(InputError, match=r"smoothed by 0\.01; below 0\.03 single precision overflows"):
        transport_plans(costs, rows, columns, epsilon=0.01)


def test_maps_of_one_place_are_compared_by_the_cosine_of_centred_channels() -> None:
    draw = torch.Generator().manual_seed(0)
    images, classes = torch.rand(5, 1, 8, generator=draw), torch.rand(3, 1, 8, generator=draw)
    centred = [functional.normalize(side[:, 0] - side[:, 0].mean(1, keepdim=True)) for side in (images, classes)]
    torch.testing.assert_close(transport_scores(images, classes), centred[0] @ centred[1].T)


def test_where_things_stand_in_an_image_does_not_matter_and_an_image_is_most_like_itself() -> None:
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(6, 9, 32, generator=draw)
    scores = transport_scores(images, images)
    moved = images[:, torch.randperm(9, generator=draw)]
    torch.testing.assert_close(transport_scores(moved, images), scores, atol=1e-5, rtol=1e-4)
    assert torch.equal(scores.argmax(1), torch.arange(6))
    assert float(scores.max()) <= 1 + 1e-5


def test_places_weigh_as_much_as_they_agree_with_the_other_side() -> None:
    image, other = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[[3.0, 0.0], [3.0, 0.0]]])
    of_image, of_class = place_weights(image, other)
    torch.testing.assert_close(of_image, torch.tensor([[[2 * 3.001 / 3.002, 2 * 0.001 / 3.002]]]))
    torch.testing.assert_close(of_class, torch.ones(1, 1, 2))
