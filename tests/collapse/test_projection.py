import pytest
import torch
from torch.nn import functional

from masil.collapse import Projection


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_default_shape_is_twice_the_width_twice_then_512_with_a_skip():
    shapes = {name: tuple(value.shape) for name, value in Projection(64).state().items()}
    assert shapes == {
        "layers.0.weight": (128, 64), "layers.0.bias": (128,), "layers.1.weight": (128,), "layers.1.bias": (128,),
        "layers.3.weight": (128, 128), "layers.3.bias": (128,), "layers.4.weight": (128,), "layers.4.bias": (128,),
        "layers.6.weight": (512, 128), "skip.weight": (512, 64),
    }  # fmt: skip


def test_it_computes_its_formula():
    g = Projection(6, 4, hidden=(5, 3), generator=seeded())
    w = g.state()
    a = torch.rand(7, 6, generator=seeded(1))
    h = a
    for linear, norm in (("layers.0", "layers.1"), ("layers.3", "layers.4")):
        h = h @ w[f"{linear}.weight"].T + w[f"{linear}.bias"]
        h = (h - h.mean(1, keepdim=True)) / (h.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        h = h * w[f"{norm}.weight"] + w[f"{norm}.bias"]
        h = torch.where(h > 0, h, 0.1 * h)
    expected = h @ w["layers.6.weight"].T + a @ w["skip.weight"].T
    torch.testing.assert_close(g.transform(a), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(g(a), functional.normalize(expected), atol=1e-5, rtol=1e-5)
    linear = Projection(6, 4, hidden=(), skip=False)  # without hidden layers
    torch.testing.assert_close(linear.transform(2 * a + a[0]), 2 * linear.transform(a) + linear.transform(a[:1]))


def test_weights_come_from_the_generator_and_from_nothing_else():
    before = torch.get_rng_state()
    first, second, other = (Projection(6, 4, generator=seeded(seed)).state() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["layers.0.weight"], other["layers.0.weight"])
    assert torch.equal(Projection(6, 4).state()["skip.weight"], Projection(6, 4).state()["skip.weight"])


def test_weights_spread_as_torch_spreads_them():
    weight = Projection(100, 50, generator=seeded()).state()["layers.0.weight"]
    reference = torch.nn.Linear(100, 200).weight.detach()
    assert float(weight.abs().max()) <= 0.1
    assert float(weight.std()) == pytest.approx(float(reference.std()), rel=0.05)
    assert float(weight.mean()) == pytest.approx(0, abs=0.002)
