import pytest
import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.attention import Calibration
from masil.methods.limit import LimitLoss, first_of_repeated
from masil.training import CosineLoss

D, K, N = 6, 4, 5


@pytest.fixture
def rows() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(N, D, generator=generator), torch.randn(K, D, generator=generator)


def drawn(*, raw_query: bool) -> Calibration:
    """A calibration that is far from its start."""
    layer, generator = Calibration(D, 16.0, raw_query=raw_query).requires_grad_(False), torch.Generator().manual_seed(1)
    for weight in layer.parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator))
    return layer


@pytest.mark.parametrize("raw_query", [False, True])
def test_logits_are_those_of_each_image_with_all_rows_as_tokens(rows: tuple[Tensor, Tensor], raw_query: bool) -> None:
    x, means = rows
    layer = drawn(raw_query=raw_query)
    for image, logits in zip(x, layer(x, means), strict=True):
        tokens = torch.cat([means, image[None]])
        looks = torch.softmax((tokens @ layer.attention.Q) @ (tokens @ layer.attention.K).T, 1)
        tokens = functional.layer_norm(tokens + looks @ (tokens @ layer.attention.V), (D,), layer.gain, layer.bias)
        expected = functional.cosine_similarity(tokens[-1:], tokens[:-1])
        expected = expected * tokens[-1].norm() if raw_query else expected
        torch.testing.assert_close(logits, 16 * expected, atol=2e-3, rtol=1e-3)  # the layer norm adds 1e-5 to variances


def test_without_attention_it_is_the_cosine_after_layer_norm(rows: tuple[Tensor, Tensor]) -> None:
    x, means = rows
    z, w = (functional.normalize(functional.layer_norm(part, (D,))) for part in rows)
    torch.testing.assert_close(Calibration(D, 16.0)(x, means).detach(), 16 * z @ w.T, atol=1e-3, rtol=1e-3)


def test_the_order_of_classes_does_not_matter(rows: tuple[Tensor, Tensor]) -> None:
    x, means = rows
    order, layer = torch.tensor([2, 0, 3, 1]), drawn(raw_query=False)
    torch.testing.assert_close(layer(x, means[order]), layer(x, means)[:, order], atol=1e-4, rtol=1e-4)


def built() -> list[CosineLoss]:
    """The loss, and the plain one that it adds to."""
    return [loss.build(D, 3, torch.Generator().manual_seed(0)) for loss in (LimitLoss(), CosineLoss())]


def test_a_replaced_row_gets_no_gradient_and_its_shot_does() -> None:
    """Classes 0 and 1 come twice, so one image of each stands for the class; class 2 keeps its vector."""
    labels = torch.tensor([0, 1, 2, 1, 0])
    activations = torch.rand(5, D, generator=torch.Generator().manual_seed(0)).requires_grad_()
    extra = []
    for loss in built():
        value = loss(activations, labels, labels, torch.ones(5))
        extra.append(torch.autograd.grad(value, [loss.vectors, activations]))
    of_vectors, of_images = (first - second for first, second in zip(*extra, strict=True))
    assert float(of_vectors[:2].abs().max()) < 1e-6
    assert float(of_vectors[2].abs().max()) > 1e-4
    assert float(of_images[:2].abs().max(1).values.min()) > 1e-4


def test_shots_of_a_batch_are_first_images_of_classes_that_come_twice() -> None:
    assert first_of_repeated(torch.tensor([3, 1, 2, 1, 3, 3]), 16).tolist() == [0, 1]
    assert first_of_repeated(torch.tensor([3, 1, 2, 1, 3, 3]), 1).tolist() == [0]
    assert first_of_repeated(torch.tensor([3, 1, 2]), 16).tolist() == []


def test_a_batch_without_a_class_twice_is_plain_cross_entropy() -> None:
    labels, activations = torch.arange(3), torch.rand(3, D, generator=torch.Generator().manual_seed(0))
    assert torch.equal(*(loss(activations, labels, labels, torch.ones(3)) for loss in built()))
