import copy

import torch
from torch.nn import functional

from masil.methods import make
from masil.methods.sppr import Refinement, Relation, posing_as_new, refined

D, K = 6, 5


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_classes_that_play_new_give_their_prototypes_no_gradient() -> None:
    learnt = torch.randn(K, D, generator=seeded()).requires_grad_()
    refinement = Refinement(D, seeded(1))
    refinement.V.data = torch.randn(D, D, generator=seeded(2))
    means = torch.randn(4, D, generator=seeded(3))
    classes, new = torch.tensor([3, 1]), torch.tensor([2, 0])
    products = refinement.products(torch.cat([learnt, means]))
    rows = refined(products, *posing_as_new(K, classes, new))
    with torch.no_grad():
        replaced, zeroed = learnt.index_copy(0, classes, means[new]), learnt.index_fill(0, classes, 0.0)
        torch.testing.assert_close(rows.detach(), refinement(replaced, zeroed))
    (slopes,) = torch.autograd.grad(rows.square().sum(), [learnt])
    assert torch.equal(slopes[[1, 3]], torch.zeros(2, D))
    assert float(slopes[[0, 2, 4]].abs().max(1).values.min()) > 0


def test_without_values_nothing_is_refined() -> None:
    learnt = torch.randn(K, D, generator=seeded())
    assert torch.equal(Refinement(D, seeded())(learnt, learnt).detach(), learnt)


def test_refinement_is_attention_to_prototypes_and_known_rows() -> None:
    C, R = torch.randn(K, D, generator=seeded()), torch.randn(3, D, generator=seeded(1))
    refinement = Refinement(D, seeded(2)).requires_grad_(False)
    refinement.V.copy_(torch.randn(D, D, generator=seeded(3)))
    keys = torch.cat([C, R])
    for row, result in zip(C, refinement(C, R), strict=True):
        shares = torch.softmax(keys @ refinement.K @ (row @ refinement.Q) / D**0.5, 0)
        torch.testing.assert_close(result, row + shares @ keys @ refinement.V, atol=1e-5, rtol=1e-4)


def test_the_split_first_layer_is_one_layer_of_both_side_by_side() -> None:
    relation = Relation(D, seeded()).eval().requires_grad_(False)
    relation.prototype.weight.copy_(torch.randn(64, D, generator=seeded(1)))
    x, prototypes = torch.randn(3, D, generator=seeded(2)), torch.randn(K, D, generator=seeded(3))
    both = torch.cat([relation.image.weight, relation.prototype.weight], 1)
    for image, scores in zip(x, relation(x, prototypes), strict=True):
        pairs = functional.normalize(torch.stack([image.expand(K, D), prototypes]), dim=2)
        hidden = torch.relu(relation.norms[0](torch.cat([*pairs], 1) @ both.T + relation.image.bias))
        expected = relation.last(torch.relu(relation.norms[1](relation.second(hidden))))[:, 0]
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-4)


def test_prototypes_follow_from_the_base_session_and_all_shots_alone(task, peaks) -> None:
    """Two sessions give the same prototypes as one with the classes of both: nothing refined is refined again."""
    method = make("sppr", epochs=5)
    method.fit(peaks(range(6), 12), task(6, 4))
    assert method.prototypes() is method.learnt
    at_once = copy.deepcopy(method)
    first, second = peaks(range(6, 8), 5), peaks(range(8, 10), 5)
    for shots in (first, second):
        method.learn(shots)
    at_once.learn(first.joined(second))
    torch.testing.assert_close(method.prototypes(), at_once.prototypes())
    assert not torch.allclose(method.prototypes()[:6], method.learnt)


def test_base_prototypes_can_be_left_as_learnt(task, peaks) -> None:
    method = make("sppr", epochs=5, refine_base=False)
    method.fit(peaks(range(6), 12), task(6, 4))
    method.learn(peaks(range(6, 8), 5))
    assert torch.equal(method.prototypes()[:6], method.learnt)
    assert not torch.allclose(method.prototypes()[6:], method.means)
