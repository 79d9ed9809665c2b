"""Methods that train a backbone in a way of their own: what their recipes ask for, and what they do with the result."""

import pytest
import torch
from torch.nn import functional

from masil.methods import METHODS, make
from masil.training import RECIPES, Recipe

OWN = [name for name, method in METHODS.items() if method.needs_base_training]
USUAL = RECIPES["cifar100-paper"]  # whose objective is dot-regression: none of it may be left


def test_these_train_their_own() -> None:
    assert OWN == ["d-negcosine", "alice", "fact", "icarl"]


@pytest.mark.parametrize("name", OWN)
def test_a_recipe_is_the_usual_one_but_for_what_the_method_changes(name: str) -> None:
    own = make(name, total=100).recipe(USUAL, 60)
    assert own.method == name
    assert own.name == f"cifar100-paper+{name}"
    assert own.objective.dot == 0
    changed = {line.split(":")[0].split(".")[0] for line in own.differences(USUAL)}
    assert changed <= {"name", "method", "objective", "fused"}
    assert Recipe.from_json(own.to_json()) == own


def test_each_asks_for_its_own_loss() -> None:
    alice, fact, icarl, negative = (
        make(name, total=100).recipe(USUAL, 60) for name in ("alice", "fact", "icarl", "d-negcosine")
    )
    assert (alice.objective.margin, alice.objective.cosine_scale, alice.fused) == (0.4, 30.0, 0.5)
    assert (fact.objective.prototypes, fact.objective.prototype_weight) == (40, 0.01)
    assert (icarl.objective.cosine, icarl.objective.binary) == (0.0, 1.0)
    assert negative.objective.margin < 0
    assert make("alice", virtual=False).recipe(USUAL, 60).fused == 0


@pytest.mark.parametrize("name", OWN)
def test_a_backbone_of_its_own_is_not_taught_again(name: str) -> None:
    labels = torch.arange(4).repeat(6)
    activations = torch.rand(24, 8, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(4, 8)[labels]
    method = make(name, total=6)
    method.own_base = True
    method.fit(activations, labels)
    geometry = method.geometry(activations)
    assert geometry is not None
    torch.testing.assert_close(geometry[0], functional.normalize(activations))


def test_icarl_forgets_little_though_activations_have_much_in_common() -> None:
    """Class means of such activations are near every image: as rows of the sigmoids they would say yes to all."""
    generator = torch.Generator().manual_seed(0)

    def images(first: int, last: int, each: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.arange(first, last).repeat(each)
        noise = torch.rand(len(labels), 32, generator=generator)
        return 1.0 + noise + torch.eye(32)[labels], labels

    method = make("icarl", total=24)
    method.own_base = True
    method.fit(*images(0, 20, 30))
    tests, truth = images(0, 20, 20)
    before = float((method.predict(tests) == truth).float().mean())
    assert before > 0.8
    method.learn(*images(20, 24, 5))
    assert float((method.predict(tests) == truth).float().mean()) > before - 0.2  # .09, on other draws .10
