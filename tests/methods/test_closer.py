import pytest
import torch
from torch.nn import functional

from masil.methods import Closer, DCosine, Queries, Samples
from masil.methods.closer import CloserLoss, between_classes
from masil.protocol import Protocol
from masil.training import CosineLoss, make_loss, usual_recipe

LABELS = torch.tensor([0, 1, 2, 0])


def built(**settings: float) -> CloserLoss:
    return CloserLoss(**settings).build(6, 3, torch.Generator().manual_seed(0))


def test_without_its_two_terms_it_is_the_cross_entropy_of_scaled_cosines() -> None:
    a = torch.rand(12, 6, generator=torch.Generator().manual_seed(1))
    y, lam = LABELS.repeat(3), torch.ones(12)
    plain = CosineLoss(scale=32.0).build(6, 3, torch.Generator().manual_seed(0))
    torch.testing.assert_close(built(spread=0.0, closer=0.0)(a, y, y, lam), plain(a, y, y, lam))


def test_the_last_term_draws_classes_together() -> None:
    a = torch.rand(12, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y, lam = LABELS.repeat(3), torch.ones(12)
    added = built(spread=0.0, closer=1.0)(a, y, y, lam) - built(spread=0.0, closer=0.0)(a, y, y, lam)
    (pull,) = torch.autograd.grad(added, a)
    with torch.no_grad():
        assert float(between_classes(a - 0.01 * pull, y)) > float(between_classes(a, y))


def test_the_contrast_is_with_the_other_views_of_the_same_image() -> None:
    a = torch.rand(12, 6, generator=torch.Generator().manual_seed(1))
    y, lam = LABELS.repeat(3), torch.ones(12)
    logits = 32 * functional.normalize(a).double() @ functional.normalize(a).double().T
    total = 0.0
    for i in range(12):
        others = [j for j in range(12) if j != i]
        whole = torch.logsumexp(logits[i, others], 0)
        total -= sum(float(logits[i, j] - whole) for j in others if j % 4 == i % 4) / 2
    added = built(spread=1.0, closer=0.0)(a, y, y, lam) - built(spread=0.0, closer=0.0)(a, y, y, lam)
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
