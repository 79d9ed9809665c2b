import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from masil.backbones import create
from masil.training.convolution import (
    TILES,
    Plan,
    SmallMapConv2d,
    convolve,
    convolve_whole,
    cook_toom,
    transforms,
    with_small_maps,
)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**31))
def test_cook_and_toom_correlate(outputs: int, taps: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    if outputs + taps - 2 > 5:
        return
    pixels, weights = draw.normal(size=outputs + taps - 1), draw.normal(size=taps)
    AT, G, BT = cook_toom(outputs, taps)
    np.testing.assert_allclose(AT @ ((G @ weights) * (BT @ pixels)), np.correlate(pixels, weights), atol=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(TILES)), st.sampled_from([1, 2]), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
def test_values_and_gradients_are_those_of_the_usual_convolution(
    side: int, stride: int, n: int, c: int, o: int
) -> None:
    draw = torch.Generator().manual_seed(side * 100 + c * 10 + o)
    size = side * stride
    x = torch.randn(n, c, size, size, generator=draw).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(o, c, 3, 3, generator=draw).requires_grad_()
    expected = functional.conv2d(x, weight, stride=stride, padding=1)
    pull = torch.randn(expected.shape, generator=draw)
    expected_gradients = torch.autograd.grad(expected, (x, weight), pull)
    found = convolve(x, weight, transforms(size, stride))
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-4)
    assert found.is_contiguous(memory_format=torch.channels_last)
    for ours, theirs in zip(torch.autograd.grad(found, (x, weight), pull), expected_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(("size", "stride"), [(4, 1), (4, 2), (6, 1)])
def test_gradients_are_finite_differences(size: int, stride: int) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2, 2, size, size, generator=draw, dtype=torch.float64).requires_grad_()
    weight = torch.randn(2, 2, 3, 3, generator=draw, dtype=torch.float64).requires_grad_()
    plan = Plan(*(matrix.double() for matrix in transforms(size, stride)))
    assert torch.autograd.gradcheck(lambda a, b: convolve(a, b, plan), (x, weight))


def test_a_map_of_four_takes_36_products_instead_of_144() -> None:
    assert len(transforms(4, 1).G) ** 2 == 36
    assert len(transforms(8, 2).G) ** 2 == 81  # stride 2: four of one tap, five of two


def test_a_resnet_gives_the_same_activations_and_keeps_its_parameters() -> None:
    plain = create("resnet18_cifar", seed=1).to(memory_format=torch.channels_last).train()
    small = copy.deepcopy(plain)
    with_small_maps(small)
    swapped = [name for name, module in small.named_modules() if isinstance(module, SmallMapConv2d)]
    assert len(swapped) == 11  # all 3 × 3 of layers 2 to 4 but the first, which has 64 channels
    assert "layer2.0.conv1" not in swapped
    assert list(small.state_dict()) == list(plain.state_dict())
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    torch.testing.assert_close(small(x), plain(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(128, 128, 1),
        nn.Conv2d(128, 128, 3, padding=1),  # with a bias
        nn.Conv2d(128, 128, 3, padding=1, groups=2, bias=False),
        nn.Conv2d(128, 128, 3, padding=2, dilation=2, bias=False),
        nn.Conv2d(128, 128, 3, padding=1, padding_mode="reflect", bias=False),
        nn.Conv2d(64, 128, 3, padding=1, bias=False),
    ],
)
def test_other_convolutions_stay_as_they_are(conv: nn.Conv2d) -> None:
    holder = nn.Sequential(conv)
    with_small_maps(holder)
    assert holder[0] is conv


@pytest.mark.parametrize("shape", [(5, 5), (4, 8), (32, 32)])
def test_other_maps_take_the_usual_way(shape: tuple[int, int]) -> None:
    conv = nn.Conv2d(128, 128, 3, padding=1, bias=False)
    x = torch.randn(1, 128, *shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(SmallMapConv2d(conv)(x), conv(x))


@pytest.mark.parametrize(("side", "dtype"), [(4, torch.bfloat16), (4, torch.float16), (2, torch.float16)])
def test_autocast_takes_the_usual_way(side: int, dtype: torch.dtype) -> None:
    conv = nn.Conv2d(128, 128, 3, padding=1, bias=False)
    x = torch.randn(1, 128, side, side, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype):
        assert torch.equal(SmallMapConv2d(conv)(x), conv(x))


@pytest.mark.parametrize(("n", "c", "o"), [(1, 1, 1), (3, 4, 5), (7, 16, 2)])
def test_a_map_of_two_is_one_dense_product(n: int, c: int, o: int) -> None:
    draw = torch.Generator().manual_seed(n)
    x = torch.randn(n, c, 2, 2, generator=draw, dtype=torch.float64).requires_grad_()
    weight = torch.randn(o, c, 3, 3, generator=draw, dtype=torch.float64).requires_grad_()
    expected = functional.conv2d(x, weight, padding=1)
    pull = torch.randn(expected.shape, generator=draw, dtype=torch.float64)
    product = convolve_whole(x, weight)
    torch.testing.assert_close(product, expected)
    assert product.is_contiguous(memory_format=torch.channels_last)
    expected_gradients = torch.autograd.grad(expected, (x, weight), pull)
    for ours, theirs in zip(torch.autograd.grad(product, (x, weight), pull), expected_gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_in_bfloat16_a_map_of_two_takes_the_dense_product(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(
        "masil.training.convolution.convolve_whole", lambda x, w: taken.append(x.dtype) or convolve_whole(x, w)
    )
    conv = nn.Conv2d(128, 128, 3, padding=1, bias=False)
    x = torch.randn(2, 128, 2, 2, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        product, usual = SmallMapConv2d(conv)(x), conv(x)
    assert taken == [torch.bfloat16]
    # Both round inputs and result to eight bits; sums of 512 products are taken in float32.
    torch.testing.assert_close(product.float(), usual.float(), atol=2**-7, rtol=2**-7)


@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")  # advice of torch, and of no other Python
def test_it_is_one_graph_to_the_compiler() -> None:
    module = nn.Sequential(nn.Conv2d(128, 128, 3, padding=1, bias=False), nn.ReLU())
    with_small_maps(module)
    x = torch.randn(2, 128, 8, 8, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    traced = torch.compile(module, fullgraph=True, dynamic=False, backend="eager")
    torch.testing.assert_close(traced(x), module(x))
