import dataclasses
import json

import pytest

from masil.backbones import BACKBONES
from masil.errors import InputError, UnknownNameError
from masil.methods.alice import AliceLoss
from masil.methods.fact import FactLoss
from masil.methods.icarl import ICaRLLoss
from masil.training import RECIPES, BaseLoss, CosineLoss, FrameLoss, Mixing, MuonSettings, Recipe, Sgd, Tuning, recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_json(name: str) -> None:
    saved = json.loads(json.dumps(RECIPES[name].to_json(), allow_nan=False))
    assert Recipe.from_json(saved) == RECIPES[name]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_its_own_name_and_a_backbone_that_exists(name: str) -> None:
    assert RECIPES[name].name == name
    assert RECIPES[name].backbone in BACKBONES


def test_the_papers_numbers() -> None:
    epochs = {name: RECIPES[f"{name}-paper"].epochs for name in ("cifar100", "miniimagenet", "cub200")}
    rates = {name: RECIPES[f"{name}-paper"].sgd.lr for name in epochs}
    assert epochs == {"cifar100": 200, "miniimagenet": 500, "cub200": 80}
    assert rates == {"cifar100": 0.25, "miniimagenet": 0.25, "cub200": 0.025}
    assert {RECIPES[f"{name}-paper"].batch for name in epochs} == {512}


def test_an_unknown_recipe_is_guessed() -> None:
    with pytest.raises(UnknownNameError, match=r"no recipe called 'cifar100-fasst'; did you mean 'cifar100-fast'\?"):
        recipe("cifar100-fasst")


def test_stages_say_the_size_of_each_epoch() -> None:
    staged = Recipe("x", ((2, 16), (1, 24), (1, 32)))
    assert [staged.pixels(epoch) for epoch in range(staged.epochs)] == [16, 16, 24, 32]


def test_a_part_of_the_values_is_enough() -> None:
    made = Recipe.from_json({"name": "x", "stages": [[1, 8]], "muon": {"lr": 0.5}, "sgd": {"lr": 1}})
    assert made == Recipe("x", ((1, 8),), muon=MuonSettings(lr=0.5), sgd=Sgd(lr=1))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "A recipe is a table"),
        ({"version": 99}, "version 99"),
        ({"name": "x", "stages": [[1, 8]], "momentum": 1}, "no 'momentum' in 'recipe'"),
        ({"name": "x", "stages": [[1, 8]], "sgd": {"lrr": 1}}, "no 'lrr' in 'sgd'; did you mean 'lr'"),
        ({"name": "x", "stages": [[1, 8]], "sgd": 3}, "'sgd' is a table"),
        ({"name": "x", "stages": [[1, 8]], "batch": "many"}, "'batch' cannot be 'many'"),
        ({"name": "x", "stages": [[1, 8]], "batch": True}, "'batch' cannot be True"),
        ({"name": "x"}, "stages"),
        ({"name": "x", "stages": [[1]]}, "cannot be read"),
    ],
)
def test_what_is_no_recipe_is_said(value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe.from_json(value)


def test_values_out_of_range_are_said() -> None:
    with pytest.raises(InputError, match="at least one epoch"):
        Recipe("x", ())
    with pytest.raises(InputError, match="batch of 1"):
        Recipe("x", ((1, 8),), batch=1)
    with pytest.raises(InputError, match="together more than all"):
        Mixing(mixup=0.6, cutmix=0.6)
    with pytest.raises(InputError, match="`lr` is -1, but must be at least 0"):
        Sgd(lr=-1)
    with pytest.raises(InputError, match="a share lies in"):
        Recipe("x", ((1, 8),), rotated=1.5)
    with pytest.raises(UnknownNameError, match="frame"):
        Recipe("x", ((1, 8),), loss={"name": "frame", "frame_shape": "pentagon"})
    with pytest.raises(InputError, match="The loss 'alice' makes virtual classes of its own; set `rotated` to 0"):
        Recipe("x", ((1, 8),), rotated=0.5, loss=AliceLoss().to_json())


@pytest.mark.parametrize(
    ("objective", "fused", "expected"),
    [
        ({}, 0.0, CosineLoss()),
        ({"cosine": 1.0, "smoothing": 0.1, "cosine_scale": 8.0, "start": "means"}, 0.0,
         CosineLoss(smoothing=0.1, scale=8.0, start="means")),
        ({"cosine": 0.0, "dot": 1.0, "embedding": 64, "reserve": 20}, 0.0, FrameLoss(embedding=64, reserve=20)),
        ({"cosine": 0.0, "binary": 1.0, "cosine_scale": 16.0}, 0.0, ICaRLLoss()),
        ({"prototypes": 40, "prototype_weight": 0.5}, 0.0, FactLoss(prototypes=40, weight=0.5)),
        ({"margin": 0.4, "cosine_scale": 30.0}, 0.5, AliceLoss()),
    ],
)  # fmt: skip
def test_recipes_of_version_1_are_read(objective: dict[str, object], fused: float, expected: BaseLoss) -> None:
    old = {"version": 1, "name": "x", "stages": [[1, 8]], "objective": objective, "fused": fused}
    assert Recipe.from_json(old) == Recipe("x", ((1, 8),), loss=expected.to_json())


def test_a_sum_of_losses_of_version_1_is_refused() -> None:
    with pytest.raises(InputError, match=r"adds up several losses \(cosine, dot\); name one"):
        Recipe.from_json({"version": 1, "name": "x", "stages": [[1, 8]], "objective": {"dot": 1.0}})


def test_differences_name_the_field_and_both_values() -> None:
    one = Recipe("x", ((1, 8),))
    other = dataclasses.replace(one, batch=64, tuning=Tuning(l2_sp=0.5))
    assert one.differences(one) == []
    assert one.differences(other) == ["batch: 512 here, 64 there", "tuning.l2_sp: 0.0 here, 0.5 there"]
