"""Methods that train a backbone in a way of their own: what their recipes ask for, and what they do with the result."""

import pytest
import torch
from torch.nn import functional

from masil.backbones import create
from masil.methods import METHODS, Checked, Queries, Samples, make, trains_its_own_base
from masil.protocol import PROTOCOLS
from masil.training import RECIPES, Recipe, Trained, make_loss

OWN = [name for name, method in METHODS.items() if trains_its_own_base(method)]
USUAL = RECIPES["cub200-gentle"]
CIFAR = PROTOCOLS["cifar100"]


def test_these_train_their_own() -> None:
    assert OWN == [
        "masil-as-written", "cf-as-written", "nc-fscil", "nc-ce", "learnable-ce", "d-negcosine", "alice", "fact",
        "icarl", "closer", "topic", "idlvq", "limit", "ssfe-net",
    ]  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_a_recipe_is_the_usual_one_but_for_the_loss(name: str) -> None:
    recipe = make(name).base_session(USUAL, CIFAR)
    assert recipe is not None
    trained_by = "nc-fscil" if name.endswith("as-written") else name  # these share its base session
    assert recipe.method == trained_by
    assert recipe.name == f"cub200-gentle+{trained_by}"
    changed = {line.split(":")[0].split(".")[0] for line in recipe.differences(USUAL)}
    assert changed <= {"name", "method", "loss"}
    assert Recipe.from_json(recipe.to_json()) == recipe


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alice", {"name": "alice", "margin": 0.4, "scale": 30.0, "fused": 0.0, "copies": 1, "count": 2}),
        ("fact", {"name": "fact", "prototypes": 40, "weight": 0.01, "middle": True}),
        ("icarl", {"name": "icarl"}),
        ("topic", {"name": "topic"}),
        ("idlvq", {"name": "idlvq", "margin": 0.5, "intra": 0.1}),
        ("limit", {"name": "limit", "fake": 16, "scale": 16.0}),
        ("d-negcosine", {"name": "cosine", "margin": -0.02, "smoothing": 0.0}),
        ("nc-fscil", {"name": "frame", "term": "dot-regression", "frame_shape": "simplex", "reserve": 100}),
        ("nc-ce", {"name": "frame", "term": "cross-entropy", "frame_shape": "simplex", "reserve": 100}),
        ("learnable-ce", {"name": "frame", "term": "cross-entropy", "frame_shape": None}),
    ],
)
def test_each_asks_for_its_own_loss(name: str, expected: dict[str, object]) -> None:
    recipe = make(name).base_session(USUAL, CIFAR)
    assert recipe is not None
    assert recipe.loss | expected == recipe.loss


def base_session(name: str, task, classes: int, features: int):
    """A task whose backbone was trained as the method asks, as far as the method can tell."""
    protocol = task(classes, 4).protocol
    recipe = make(name).base_session(USUAL, protocol)
    assert recipe is not None
    loss = make_loss(recipe.loss)
    loss.build(features, loss.virtual_classes(classes), torch.Generator().manual_seed(0))
    loss.start_at(torch.eye(classes, features))
    vectors = loss.class_vectors(classes)
    trained = Trained(create("resnet20", width=0.5), vectors, loss.projection, (), recipe, frame=loss.frame)
    return task(classes, 4, adapted=True, own=True, trained=trained)


FIXED = [name for name in OWN if METHODS[name].sees == "activations" and name != "limit"]  # its rows follow the image


@pytest.mark.parametrize("name", FIXED)
def test_a_backbone_of_its_own_is_not_taught_again(name: str, task) -> None:
    labels = torch.arange(4).repeat(6)
    activations = torch.rand(24, 8, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(4, 8)[labels]
    told = base_session(name, task, 4, 8)
    method = Checked(make(name))
    method.fit(Samples(activations, labels=labels), told)
    geometry = method.geometry(Queries(activations))
    assert geometry is not None
    embed = told.trained.projection or (lambda rows: rows)
    torch.testing.assert_close(geometry[0], functional.normalize(embed(activations)))


def test_icarl_forgets_little_though_activations_have_much_in_common(task) -> None:
    """Class means of such activations are near every image: as rows of the sigmoids they would say yes to all."""
    generator = torch.Generator().manual_seed(0)

    def images(first: int, last: int, each: int) -> Samples:
        labels = torch.arange(first, last).repeat(each)
        noise = torch.rand(len(labels), 32, generator=generator)
        return Samples(1.0 + noise + torch.eye(32)[labels], labels=labels)

    method = make("icarl")
    method.fit(images(0, 20, 30), base_session("icarl", task, 20, 32))
    tests = images(0, 20, 20)
    before = float((method.predict(tests) == tests.labels).float().mean())
    assert before > 0.8
    method.learn(images(20, 24, 5))
    assert float((method.predict(tests) == tests.labels).float().mean()) > before - 0.2
