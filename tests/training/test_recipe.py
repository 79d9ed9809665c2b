import dataclasses
import json
import warnings
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import masil.methods  # noqa: F401  brings its losses
from masil.backbones import BACKBONES
from masil.errors import InputError, UnknownNameError
from masil.training import (
    RECIPES,
    CosineLoss,
    FrameLoss,
    Mixing,
    MuonSettings,
    Recipe,
    Schedule,
    Sgd,
    Tuning,
    make_loss,
    recipe,
)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_json_and_has_its_own_name_and_a_backbone_that_exists(name):
    saved = json.loads(json.dumps(RECIPES[name].to_json(), allow_nan=False))
    assert Recipe.from_json(saved) == RECIPES[name]
    assert RECIPES[name].name == name
    assert all(part in BACKBONES for part in RECIPES[name].backbone.split("+"))


def test_the_papers_numbers():
    epochs = {name: RECIPES[f"{name}-paper"].epochs for name in ("cifar100", "miniimagenet", "cub200")}
    rates = {name: RECIPES[f"{name}-paper"].sgd.lr for name in epochs}
    assert epochs == {"cifar100": 200, "miniimagenet": 500, "cub200": 80}
    assert rates == {"cifar100": 0.25, "miniimagenet": 0.25, "cub200": 0.025}
    for plan in (RECIPES[f"{name}-paper"] for name in epochs):
        assert plan.batch == 512
        assert plan.sgd.momentum > 0
        assert plan.muon is None
        assert plan.schedule.shape == "cosine"
        assert plan.schedule.cycles > 1  # warm restarts
        assert plan.mixing == Mixing()
        assert plan.tuning == Tuning()
        look = plan.augmentation
        assert look.crop == "resized"
        assert 0 not in (look.flip, look.rotation, look.brightness, look.contrast, look.saturation, look.cutout)


@pytest.mark.parametrize("budget", ["quick", "leg"])
@pytest.mark.parametrize("dataset", ["cifar100", "miniimagenet", "cub200"])
def test_a_budget_keeps_the_paper_s_loss_and_augmentation_and_trains_faster(dataset, budget):
    shorter, full = RECIPES[f"{dataset}-paper-{budget}"], RECIPES[f"{dataset}-paper"]
    kept = ("backbone", "weights", "framing", "augmentation", "mixing", "rotated", "loss", "average", "seed")
    assert [getattr(shorter, name) for name in kept] == [getattr(full, name) for name in kept]
    assert shorter.epochs < full.epochs
    assert shorter.width == (0.5 if budget == "quick" and dataset != "cub200" else 1.0)
    assert (shorter.muon is None) == (dataset == "cub200")  # which is adapted gently instead
    assert ("layer1" in shorter.tuning.frozen) == (dataset == "cub200")


def test_what_nc_fscil_does_has_one_cycle_and_mixing():
    for dataset in ("cifar100", "miniimagenet", "cub200"):
        plan, paper = RECIPES[f"{dataset}-nc-fscil"], RECIPES[f"{dataset}-paper"]
        assert plan.schedule.cycles == 1
        assert (plan.mixing.mixup > 0) == (dataset != "cub200")
        assert (plan.epochs, plan.sgd, plan.loss) == (paper.epochs, paper.sgd, paper.loss)


def test_stages_say_the_size_of_each_epoch():
    staged = Recipe("x", ((2, 16), (1, 24), (1, 32)))
    assert [staged.pixels(epoch) for epoch in range(staged.epochs)] == [16, 16, 24, 32]


def test_a_part_of_the_values_is_enough():
    made = Recipe.from_json({"name": "x", "stages": [[1, 8]], "muon": {"lr": 0.5}, "sgd": {"lr": 1}})
    assert made == Recipe("x", ((1, 8),), muon=MuonSettings(lr=0.5), sgd=Sgd(lr=1))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "'recipe' is a table"),
        ({"version": 99}, "version 99"),
        ({"name": "x", "stages": [[1, 8]], "sgd": {"lrr": 1}}, "no 'lrr' in 'sgd'; did you mean 'lr'"),
        ({"name": "x", "stages": [[1, 8]], "batch": "many"}, "'batch' cannot be 'many'"),
        ({"name": "x"}, "stages"),
        ({"name": "x", "stages": [[1]]}, r"'stages' cannot be \[\[1\]\]"),
    ],
)
def test_what_is_no_recipe_is_said(value, message):
    with pytest.raises(InputError, match=message):
        Recipe.from_json(value)


short = partial(Recipe, "x", ((1, 8),))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: recipe("cifar100-fasst"), r"no recipe called 'cifar100-fasst'; did you mean 'cifar100-fast'\?"),
        (lambda: Recipe("x", ()), "at least one epoch"),
        (lambda: short(batch=1), "batch of 1"),
        (lambda: short(seed=-1), "The seed is -1; it must be a whole number from 0"),
        (lambda: Mixing(mixup=0.6, cutmix=0.6), "together more than all"),
        (lambda: Sgd(lr=-1), "`lr` is -1, but must be at least 0"),
        (lambda: short(rotated=1.5), "a share lies in"),
        (lambda: short(loss={"name": "frame", "frame_shape": "pentagon"}), "frame"),
        (lambda: short(rotated=0.5, loss={"name": "alice"}),
         "The loss 'alice' makes virtual classes of its own; set `rotated` to 0"),
        (lambda: Schedule(shape="cosin"), "did you mean 'cosine'"),
        (lambda: Schedule(warmup=1.0), r"warm-up takes a share 1\.0"),
        (lambda: Schedule(final=2), r"ends at 2"),
        (lambda: Schedule(cycles=0), "cycles >= 1"),
    ],
)  # fmt: skip
def test_values_out_of_range_and_unknown_names_are_said(make, sentence):
    with pytest.raises((InputError, UnknownNameError), match=sentence):
        make()


@pytest.mark.parametrize(
    ("objective", "fused", "expected"),
    [
        ({}, 0.0, CosineLoss()),
        ({"cosine": 1.0, "smoothing": 0.1, "cosine_scale": 8.0, "start": "means"}, 0.0,
         CosineLoss(smoothing=0.1, scale=8.0, start="means")),
        ({"cosine": 0.0, "dot": 1.0, "embedding": 64, "reserve": 20}, 0.0, FrameLoss(embedding=64, reserve=20)),
        ({"cosine": 0.0, "binary": 1.0, "cosine_scale": 16.0}, 0.0, make_loss({"name": "icarl"})),
        ({"prototypes": 40, "prototype_weight": 0.5}, 0.0,
         make_loss({"name": "fact", "prototypes": 40, "weight": 0.5})),
        ({"margin": 0.4, "cosine_scale": 30.0}, 0.5, make_loss({"name": "alice"})),
    ],
)  # fmt: skip
def test_recipes_of_version_1_are_read(objective, fused, expected):
    old = {"version": 1, "name": "x", "stages": [[1, 8]], "objective": objective, "fused": fused}
    assert Recipe.from_json(old) == Recipe("x", ((1, 8),), loss=expected.to_json())


def test_a_sum_of_losses_of_version_1_is_refused():
    with pytest.raises(InputError, match=r"adds up several losses \(cosine, dot\); name one"):
        Recipe.from_json({"version": 1, "name": "x", "stages": [[1, 8]], "objective": {"dot": 1.0}})


def test_differences_name_the_field_and_both_values():
    one = Recipe("x", ((1, 8),))
    other = dataclasses.replace(one, batch=64, tuning=Tuning(l2_sp=0.5))
    assert one.differences(one) == []
    assert one.differences(other) == ["batch: 512 here, 64 there", "tuning.l2_sp: 0.0 here, 0.5 there"]


schedules = st.builds(
    Schedule,
    shape=st.sampled_from(["constant", "linear", "cosine"]),
    warmup=st.floats(0, 0.5),
    final=st.floats(0, 1),
    cycles=st.integers(1, 4),
    growth=st.floats(0.5, 3),
)


@given(schedules, st.integers(1, 300), st.data())
def test_the_rate_stays_between_zero_and_the_peak(schedule, steps, data):
    factor = schedule.factor(data.draw(st.integers(0, steps - 1)), steps)
    assert 0 <= factor <= 1 + 1e-12


def test_warm_up_rises_linearly_and_the_line_falls_to_the_end():
    schedule = Schedule(shape="linear", warmup=0.2)
    factors = [schedule.factor(step, 100) for step in range(100)]
    rises = [b - a for a, b in pairwise(factors[:20])]
    falls = [a - b for a, b in pairwise(factors[20:])]
    assert rises == pytest.approx([1 / 20] * 19)
    assert falls == pytest.approx([1 / 80] * 79)
    assert factors[-1] == pytest.approx(0.5 / 80)
    assert Schedule(shape="cosine", warmup=0.0, final=0.1).factor(10**6 - 1, 10**6) == pytest.approx(0.1)


def test_restarts_are_those_of_torch():
    schedule = Schedule(shape="cosine", warmup=0.0, cycles=3, growth=2.0)  # lengths 1 + 2 + 4
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own making: it is stepped without its optimiser
        reference = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimiser, T_0=1, T_mult=2)
        for step in range(70):
            reference.step((step + 0.5) / 10)
            assert schedule.factor(step, 70) == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-9)
