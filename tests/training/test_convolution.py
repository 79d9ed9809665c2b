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
    choose_forms,
    convolve,
    convolve_unfolded,
    cook_toom,
    fastest,
    transforms,
    with_small_maps,
)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**31))
def test_cook_and_toom_correlate(outputs, taps, seed):
    draw = np.random.default_rng(seed)
    if outputs + taps - 2 > 5:
        return
    pixels, weights = draw.normal(size=outputs + taps - 1), draw.normal(size=taps)
    AT, G, BT = cook_toom(outputs, taps)
    np.testing.assert_allclose(AT @ ((G @ weights) * (BT @ pixels)), np.correlate(pixels, weights), atol=1e-9)


@settings(max_examples=30)
@given(st.sampled_from(sorted(TILES)), st.sampled_from([1, 2]), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
def test_any_number_of_channels_is_convolved(side, stride, n, c, o):
    draw = torch.Generator().manual_seed(side * 100 + c * 10 + o)
    x = torch.randn(n, c, side * stride, side * stride, generator=draw).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(o, c, 3, 3, generator=draw)
    expected = functional.conv2d(x, weight, stride=stride, padding=1)
    for values in (convolve(x, weight, transforms(side * stride, stride)), convolve_unfolded(x, weight, stride)):
        torch.testing.assert_close(values, expected, atol=2e-4, rtol=1e-4)
        assert values.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("size", "stride"), [(4, 1), (4, 2), (6, 1)])
def test_gradients_are_finite_differences(size, stride):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2, 2, size, size, generator=draw, dtype=torch.float64).requires_grad_()
    weight = torch.randn(2, 2, 3, 3, generator=draw, dtype=torch.float64).requires_grad_()
    plan = Plan(*(matrix.double() for matrix in transforms(size, stride)))
    assert torch.autograd.gradcheck(lambda a, b: convolve(a, b, plan), (x, weight))
    assert len(transforms(4, 1).G) ** 2 == 36  # products of a 4 × 4 map, instead of 144
    assert len(transforms(8, 2).G) ** 2 == 81  # stride 2: four of one tap, five of two


def test_a_resnet_gives_the_same_activations_and_keeps_its_parameters():
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
def test_other_convolutions_stay_as_they_are(conv):
    holder = nn.Sequential(conv)
    with_small_maps(holder)
    assert holder[0] is conv


@pytest.mark.parametrize("shape", [(5, 5), (4, 8), (32, 32)])
def test_other_maps_take_the_usual_way(shape):
    conv = nn.Conv2d(128, 128, 3, padding=1, bias=False)
    x = torch.randn(1, 128, *shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(SmallMapConv2d(conv)(x), conv(x))


@pytest.mark.parametrize("form", ["torch", "winograd", "dense", "unfolded"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [2, 3, 4, 8])
def test_every_form_has_values_and_gradients_of_the_usual_convolution(form, stride, side):
    draw = torch.Generator().manual_seed(side)
    usual = nn.Conv2d(128, 130, 3, stride, 1, bias=False).double()
    layer = SmallMapConv2d(usual)
    if form not in [*layer.forms(side, torch.float32), *layer.forms(side, torch.bfloat16)]:
        return
    layer.plans = {size: Plan(*(matrix.double() for matrix in plan)) for size, plan in layer.plans.items()}
    x = torch.randn(3, 128, side, side, generator=draw, dtype=torch.float64).requires_grad_()
    expected = usual(x)
    pull = torch.randn(expected.shape, generator=draw, dtype=torch.float64)
    values = layer.compute(x, form)
    # The matrices of a plan are rounded to float32, but for those of small whole numbers and halves.
    near = {"atol": 1e-4, "rtol": 1e-4} if form == "winograd" else {"atol": 1e-9, "rtol": 1e-9}
    torch.testing.assert_close(values, expected, **near)
    gradients = (torch.autograd.grad(y, (x, usual.weight), pull) for y in (values, expected))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, **near)


@pytest.mark.parametrize(
    ("side", "stride", "dtype", "forms"),
    [
        (2, 1, torch.float32, ["winograd", "torch", "dense", "unfolded"]),
        (2, 1, torch.bfloat16, ["dense", "torch", "unfolded"]),
        (2, 2, torch.bfloat16, ["torch", "dense", "unfolded"]),
        (4, 1, torch.bfloat16, ["torch", "unfolded"]),
        (16, 1, torch.float32, ["torch"]),
        (2, 1, torch.float16, ["torch"]),
    ],
)
def test_forms_follow_from_size_stride_and_precision(side, stride, dtype, forms):
    assert SmallMapConv2d(nn.Conv2d(128, 128, 3, stride, 1, bias=False)).forms(side, dtype) == forms


@pytest.mark.parametrize(("side", "dtype"), [(2, torch.bfloat16), (4, torch.bfloat16), (3, torch.float32)])
def test_the_form_that_was_chosen_is_taken(side, dtype, monkeypatch):
    conv = nn.Conv2d(128, 128, 3, padding=1, bias=False)
    layer, taken = SmallMapConv2d(conv), []
    compute = layer.compute
    monkeypatch.setattr(layer, "compute", lambda x, form: taken.append((x.dtype, form)) or compute(x, form))
    x = torch.randn(2, 128, side, side, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        expected, first = conv(x), layer(x)
        layer.chosen[side] = "unfolded"
        second = layer(x)
        layer.chosen[side] = "winograd"  # chosen in float32, of no use in bfloat16
        third = layer(x)
    usual = layer.forms(side, dtype)[0]
    last = "winograd" if dtype == torch.float32 else usual
    assert taken == [(dtype, usual), (dtype, "unfolded"), (dtype, last)]
    # bfloat16 rounds inputs and result to eight bits; sums of 1,152 products are taken in float32.
    for values in (first, second, third):
        torch.testing.assert_close(values.float(), expected.float(), atol=2**-7, rtol=2**-7)


def test_layers_are_timed_once_and_take_the_fastest_form(monkeypatch):
    backbone = create("resnet18_cifar", width=1.0)
    with_small_maps(backbone)
    asked: list[list[int]] = []

    def last(layer, x, forms, cast):
        asked.append([*x.shape, layer.out_channels])
        return forms[-1]

    monkeypatch.setattr("masil.training.convolution.fastest", last)
    known: dict[str, str] = {}
    for _ in range(2):
        choose_forms(backbone, (5, 16), None, known)
    # At 16 px: maps of 8 in layer 2, of 8 and 4 in layer 3, of 4 and 2 in layer 4.
    assert sorted(asked) == [
        [5, 128, 8, 8, 128],
        [5, 128, 8, 8, 256],
        [5, 256, 4, 4, 256],
        [5, 256, 4, 4, 512],
        [5, 512, 2, 2, 512],
    ]
    assert set(known.values()) == {"unfolded"}
    layers = [module for module in backbone.modules() if isinstance(module, SmallMapConv2d)]
    assert {tuple(layer.chosen.values()) for layer in layers} == {("unfolded",)}
    assert "512 to 512 channels, 2 × 2, stride 1" in known


@pytest.mark.parametrize("frozen", [False, True])
def test_a_trial_leaves_no_trace(frozen):
    layer = SmallMapConv2d(nn.Conv2d(128, 128, 3, padding=1, bias=False).requires_grad_(not frozen))
    before, state = layer.weight.detach().clone(), torch.random.get_rng_state()
    forms = layer.forms(2, torch.float32)
    assert fastest(layer, torch.ones(2, 128, 2, 2), forms, None) in forms
    assert torch.equal(layer.weight, before)
    assert layer.weight.grad is None
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")  # advice of torch, and of no other Python
@pytest.mark.parametrize("form", ["winograd", "unfolded"])
def test_it_is_one_graph_to_the_compiler(form):
    module = nn.Sequential(nn.Conv2d(128, 128, 3, padding=1, bias=False), nn.ReLU())
    with_small_maps(module)
    module[0].chosen[8] = form
    x = torch.randn(2, 128, 8, 8, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    traced = torch.compile(module, fullgraph=True, dynamic=False, backend="eager")
    torch.testing.assert_close(traced(x), module(x))
