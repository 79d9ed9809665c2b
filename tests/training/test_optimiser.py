import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from masil.backbones import create
from masil.errors import InputError, StorageError
from masil.training import Sgd, Tuning
from masil.training.network import make_network
from masil.training.optimiser import (
    CUBIC,
    LINEAR,
    QUINTIC,
    Muon,
    Optimiser,
    as_matrix,
    freeze,
    orthogonal,
    set_training,
)


def network(recipe, backbone="resnet20"):
    return make_network(create(backbone, width=recipe.width).requires_grad_(True), 3, recipe)


def give_gradients(module):
    for number, parameter in enumerate(module.parameters()):
        if parameter.requires_grad:
            draw = torch.Generator().manual_seed(number)
            parameter.grad = torch.randn(parameter.shape, generator=draw)


def rates(optimiser):
    return {
        optimiser.names[parameter]: (type(part).__name__, group["lr"], group.get("weight_decay", 0.0))
        for part in optimiser.parts
        for group in part.param_groups
        for parameter in group["params"]
    }


def test_muon_takes_convolutions_and_sgd_the_rest(tiny):
    found = rates(Optimiser(network(tiny()), tiny()))
    assert found["backbone.conv1.weight"] == ("Muon", 0.05, 0.0)
    assert found["backbone.bn1.weight"] == ("SGD", 0.05, 0.0)
    assert found["head.vectors"] == ("SGD", 0.05, 5e-4)
    assert len(found) == len(list(network(tiny()).parameters()))
    depthwise = rates(Optimiser(network(tiny(width=1.0), "efficientnet_lite0"), tiny()))
    assert depthwise["backbone.blocks.0.depthwise_conv.weight"][0] == "SGD"
    assert depthwise["backbone.blocks.0.project_conv.weight"][0] == "Muon"


def test_without_muon_sgd_takes_all_and_decays_vectors_if_told(tiny):
    recipe = tiny(muon=None, sgd=Sgd(lr=0.1, decay_vectors=True))
    assert set(rates(Optimiser(network(recipe), recipe)).values()) == {("SGD", 0.1, 5e-4)}


@pytest.fixture
def frozen_network(tiny):
    def make(**tuning):
        recipe = tiny(tuning=Tuning(**tuning))
        module = network(recipe)
        freeze(module, recipe.tuning)
        set_training(module, recipe.tuning)
        return module

    return make


def test_frozen_modules_have_no_gradient_and_keep_their_statistics(frozen_network):
    module = frozen_network(frozen=("conv1", "bn1", "layer1"))
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    assert frozen == {
        name
        for name, _ in module.named_parameters()
        if name.startswith(("backbone.conv1", "backbone.bn1", "backbone.layer1"))
    }
    assert not module.backbone.get_submodule("bn1").training
    assert not module.backbone.get_submodule("layer1.0.bn1").training
    assert module.backbone.get_submodule("layer2.0.bn1").training
    with pytest.raises(InputError, match=r"no module 'layer9' to freeze or slow down; did you mean 'layer\d'"):
        frozen_network(frozen=("layer9",))


def test_a_frozen_batch_norm_is_frozen_everywhere(frozen_network):
    module = frozen_network(freeze_batch_norm=True)
    norms = [child for child in module.modules() if isinstance(child, nn.BatchNorm2d)]
    assert norms
    assert not any(norm.training or norm.weight.requires_grad or norm.bias.requires_grad for norm in norms)
    assert module.backbone.get_submodule("conv1").weight.requires_grad


def test_the_longest_name_sets_the_rate(tiny):
    recipe = tiny(muon=None, sgd=Sgd(lr=1.0), tuning=Tuning(rates={"": 0.1, "layer3": 0.5, "layer3.0": 0.25}))
    found = rates(Optimiser(network(recipe), recipe))
    assert found["backbone.conv1.weight"][1] == 0.1
    assert found["backbone.layer3.1.conv1.weight"][1] == 0.5
    assert found["backbone.layer3.0.conv1.weight"][1] == 0.25
    assert found["head.vectors"][1] == 1.0


def test_a_step_is_scaled_and_forgets_the_gradients(tiny):
    recipe = tiny(muon=None, sgd=Sgd(lr=0.5, momentum=0.0, weight_decay=0.0, nesterov=False))
    module = network(recipe)
    optimiser = Optimiser(module, recipe)
    give_gradients(module)
    expected = {name: p.detach() - 0.25 * p.grad for name, p in module.named_parameters() if p.grad is not None}
    optimiser.step(0.5)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name])
        assert parameter.grad is None


def test_l2_sp_pulls_the_backbone_back_and_leaves_the_head(tiny):
    recipe = tiny(muon=None, sgd=Sgd(lr=0.5, momentum=0.0, weight_decay=0.0), tuning=Tuning(l2_sp=0.2))
    module = network(recipe)
    optimiser = Optimiser(module, recipe)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    for parameter in module.parameters():
        parameter.data.add_(1.0)
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step(1.0)
    for name, parameter in module.named_parameters():
        moved = 0.9 if name.startswith("backbone.") else 1.0  # 1 − lr · l2_sp
        torch.testing.assert_close(parameter.detach(), before[name] + moved)


def test_a_state_goes_on_where_it_was(tiny):
    recipe = tiny(tuning=Tuning(l2_sp=0.1))
    first, second = network(recipe), network(recipe)
    steady, resumed = Optimiser(first, recipe), Optimiser(second, recipe)
    give_gradients(first)
    steady.step(1.0)
    second.load_state_dict(first.state_dict())
    resumed.load(steady.state())
    for module, optimiser in ((first, steady), (second, resumed)):
        give_gradients(module)
        optimiser.step(0.5)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(StorageError, match="lacks the initial weights of backbone"):
        resumed.load({})


@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**31))
def test_rounds_send_each_singular_value_through_the_polynomial(b, m, n, rounds, seed):
    X = torch.randn(b, m, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for matrix, found in zip(X.numpy(), orthogonal(X, rounds).numpy(), strict=True):
        U, s, Vt = np.linalg.svd(matrix / np.linalg.norm(matrix), full_matrices=False)
        for _ in range(rounds):
            s = LINEAR * s + CUBIC * s**3 + QUINTIC * s**5
        np.testing.assert_allclose(found, U * s @ Vt, atol=1e-9)


def test_five_rounds_make_a_matrix_about_orthogonal_in_float32():
    X = torch.randn(1, 64, 576, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(X, 5))
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3


@pytest.mark.parametrize("decay", [0.0, 1.0, 2.0])
def test_in_bfloat16_the_step_points_the_same_way(decay):
    draw = torch.Generator().manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(n, 64, generator=draw)).Q for n in (64, 576))
    X = ((left * torch.arange(1, 65) ** -decay) @ right.T)[None]  # singular values 1, 2^-decay, 3^-decay, …
    exact, cast = orthogonal(X), orthogonal(X, cast=torch.bfloat16)
    assert cast.dtype == X.dtype
    assert float((cast - exact).norm() / exact.norm()) < 0.1


def test_no_gradient_no_step_and_no_division_by_zero():
    still, zero = (torch.nn.Parameter(torch.ones(4, 2, 3, 3)) for _ in range(2))
    zero.grad = torch.zeros_like(zero)
    Muon([still, zero], lr=0.1).step()
    assert torch.equal(still, torch.ones(4, 2, 3, 3))
    assert torch.isfinite(zero).all()


def test_a_step_is_what_its_formula_says():
    draw = torch.Generator().manual_seed(1)
    start, first, second = (torch.randn(6, 2, 3, 3, generator=draw) for _ in range(3))
    weight = torch.nn.Parameter(start.clone())
    muon = Muon([weight], lr=0.2, momentum=0.5, rounds=3)
    expected = start.flatten(1)
    momentum = torch.zeros(6, 18)
    for gradient in (first, second):
        weight.grad = gradient.clone()
        muon.step()
        momentum = 0.5 * momentum + gradient.flatten(1)
        turned = orthogonal((gradient.flatten(1) + 0.5 * momentum)[None])[0]
        expected = 6**0.5 * expected / expected.norm() - 0.2 * turned
    torch.testing.assert_close(weight.detach().flatten(1), expected)


def test_neither_memory_layout_nor_company_changes_a_step():
    draw = torch.Generator().manual_seed(2)
    starts, gradients = (torch.randn(3, 8, 4, 3, 3, generator=draw) for _ in range(2))
    alone = []
    for start, gradient in zip(starts, gradients, strict=True):
        weight = torch.nn.Parameter(start.clone())
        weight.grad = gradient.clone()
        Muon([weight], lr=0.1).step()
        alone.append(weight.detach())
    last = [torch.nn.Parameter(start.clone(memory_format=torch.channels_last)) for start in starts]
    for weight, gradient in zip(last, gradients, strict=True):
        weight.grad = gradient.clone(memory_format=torch.channels_last)
    Muon(last, lr=0.1).step()
    for one, other in zip(alone, last, strict=True):
        torch.testing.assert_close(one, other.detach())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_weight_is_seen_as_a_matrix_without_a_copy(layout):
    weight = torch.zeros(4, 2, 3, 3).contiguous(memory_format=layout)
    as_matrix(weight).add_(1)
    assert torch.equal(weight, torch.ones(4, 2, 3, 3))
