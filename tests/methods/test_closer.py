import pytest
import torch
from torch import Tensor
from torch.nn import functional

from masil.methods import Closer, DCosine, Queries, Samples
from masil.methods.closer import CloserLoss, between_classes
from masil.protocol import Protocol
from masil.training import CosineLoss, make_loss, usual_recipe

LABELS = torch.tensor([0, 1, 2, 0])
ROWS, OF = torch.rand(12, 6, generator=torch.Generator().manual_seed(1)), LABELS.repeat(3)  # three views of each


def value(loss: CosineLoss, rows: Tensor = ROWS) -> Tensor:
    return loss.build(6, 3, torch.Generator().manual_seed(0))(rows, OF, OF, torch.ones(12))


def test_without_its_two_terms_it_is_the_cross_entropy_of_scaled_cosines() -> None:
    torch.testing.assert_close(value(CloserLoss(spread=0.0, closer=0.0)), value(CosineLoss(scale=32.0)))


def test_the_last_term_draws_classes_together() -> None:
    a = ROWS.clone().requires_grad_()
    added = value(CloserLoss(spread=0.0, closer=1.0), a) - value(CosineLoss(scale=32.0), a)
    (pull,) = torch.autograd.grad(added, a)
    assert float(between_classes(ROWS - 0.01 * pull, OF)) > float(between_classes(ROWS, OF))


def test_the_contrast_is_with_the_other_views_of_the_same_image() -> None:
    unit = functional.normalize(ROWS).double()
    logits = 32 * unit @ unit.T
    total = 0.0
    for i in range(12):
        others = [j for j in range(12) if j != i]
        whole = torch.logsumexp(logits[i, others], 0)
        total -= sum(float(logits[i, j] - whole) for j in others if j % 4 == i % 4) / 2
    added = value(CloserLoss(spread=1.0, closer=0.0)) - value(CosineLoss(scale=32.0))
    assert float(added.detach()) == pytest.approx(total / 12, rel=1e-4)


def test_views_are_of_the_same_images_in_their_order() -> None:
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    rows, labels = CloserLoss().views(images, LABELS, 3, torch.Generator().manual_seed(2))
    assert rows.shape == (12, 3, 8, 8)
    assert torch.equal(rows[:4], images)
    assert labels.tolist() == LABELS.tolist() * 3
    assert make_loss(CloserLoss(closer=0.5).to_json()).closer == 0.5


def test_pairs_of_one_class_do_not_count() -> None:
    a = torch.eye(3)
    assert float(between_classes(a, torch.tensor([0, 0, 0]))) == 0
    both = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    torch.testing.assert_close(between_classes(both, torch.tensor([0, 1])), torch.tensor(0.5**0.5))


def test_on_a_shared_backbone_it_is_d_cosine_and_else_it_trains_with_its_loss(task) -> None:
    rows = torch.rand(20, 6, generator=torch.Generator().manual_seed(1))
    base, asked = Samples(rows, labels=torch.arange(4).repeat(5)), Queries(torch.rand(9, 6))
    ours, plain = Closer(), DCosine()
    for method in (ours, plain):
        method.fit(base, task(4))
    assert torch.equal(ours.predict(asked), plain.predict(asked))
    protocol = Protocol("cifar100", "cifar100", base_classes=60, sessions=8, way=5, shot=5)
    recipe = Closer(spread=0.2).base_session(usual_recipe("cifar100"), protocol)
    assert recipe.loss["name"] == "closer"
    assert recipe.loss["spread"] == 0.2
