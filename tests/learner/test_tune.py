"""Choosing on classes that play novel: honest divisions, a whole table, and the same answer as playing it by hand."""

import numpy as np
import pytest
import torch

from masil.backbones import create
from masil.errors import InputError, UnknownNameError
from masil.learner import Masil, encoder, tune
from masil.protocol import divide, harmonic_mean

SMALL = {"shrinkage": (1.0, 30.0), "alpha": ("auto", 0.0), "bias": (0.0, 0.05), "plays": 1, "shots": 3}


@pytest.fixture(scope="module")
def tuned(world):
    return tune(*world.draw(range(12), 10), Masil(backbone=None, concepts=6), **SMALL)


def test_every_choice_is_in_the_table_best_first(tuned):
    assert len(tuned.trials) == 2 * 2 * 2
    values = [trial.harmonic_mean for trial in tuned.trials]
    assert values == sorted(values, reverse=True)
    best = tuned.trials[0]
    assert tuned.chosen == {"shrinkage": best.shrinkage, "concepts": 6, "alpha": best.alpha, "bias": best.bias}
    assert Masil(backbone=None, **tuned.chosen).bias == best.bias


def test_a_trial_is_what_the_learner_would_do(tuned, world):
    images, labels = world.draw(range(12), 10)
    codes = torch.arange(12).repeat_interleave(10)
    play = divide(codes, 3, 0.4, 0)
    for trial in tuned.trials:
        model = Masil(backbone=None, concepts=6, shrinkage=trial.shrinkage, alpha=trial.alpha, bias=trial.bias)
        model.fit(images[play.fit], [labels[i] for i in play.fit])
        model.learn(images[play.shots], [labels[i] for i in play.shots])
        old = torch.isin(codes[play.test], torch.tensor(play.base))
        for at, found in ((play.test[old], trial.base), (play.test[~old], trial.novel)):
            two_best = np.sort(model.predict_proba(images[at]), 1)[:, -2:]
            undecided = float((two_best[:, 1] - two_best[:, 0] < 1e-4).mean())  # rounding may decide either way
            assert undecided < 0.1
            assert model.score(images[at], [labels[i] for i in at]) == pytest.approx(found, abs=undecided + 1e-6)
        assert trial.harmonic_mean == pytest.approx(harmonic_mean(trial.base, trial.novel))


def test_the_measure_decides(world):
    data = world.draw(range(8), 8)
    found = tune(*data, Masil(backbone=None, concepts=4), **{**SMALL, "alpha": (0.0,), "measure": "accuracy"})
    values = [trial.accuracy for trial in found.trials]
    assert values == sorted(values, reverse=True)
    with pytest.raises(UnknownNameError, match="no measure called 'hm'"):
        tune(*data, measure="hm")


def test_what_cannot_be_played(world):
    model = Masil(backbone=None, concepts=4)
    with pytest.raises(
        InputError, match="A share 0.4 of 2 classes is 1 that play novel; at least 1 must, and 2 must not"
    ):
        tune(*world.draw(range(2), 8), model)
    with pytest.raises(InputError, match="A class has 4 images, but to play it takes 5 to learn from and 1"):
        tune(*world.draw(range(8), 4), model)
    for given, sentence in (
        ({"shots": 0}, "`shots` is 0, but must be at least 1"),
        ({"plays": -2}, "`plays` is -2, but must be at least 1"),
        ({"seed": 2**63}, "The seed is 9223372036854775808"),
    ):
        with pytest.raises(InputError, match=sentence):
            tune(*world.draw(range(8), 8), model, **given)


def test_the_model_is_left_alone(world, model):
    before = model.memory_, model.get_params()
    tune(*world.draw(range(8), 8), model, **{**SMALL, "alpha": (0.0,)})
    assert (model.memory_, model.get_params()) == before


def test_further_parameters_are_tried_alone_around_the_best(world):
    data = world.draw(range(8), 8)
    model = Masil(backbone=None, concepts=4)
    varied = {"power": (0.5, 1.0), "teen": (0.1, 0.4), "calibration": (None,)}
    found = tune(*data, model, **{**SMALL, "bias": (0.0,)}, varied=varied)
    plain = tune(*data, model, **{**SMALL, "bias": (0.0,)})
    changed = [trial.changed for trial in found.trials if trial.changed]
    weights = [{"calibration": "both", "teen": weight} for weight in (0.1, 0.4)]
    expected = [{"power": 1.0}, *weights, {"calibration": None}]
    assert sorted(map(str, changed)) == sorted(map(str, expected))
    assert len(found.trials) == len(plain.trials) + 4
    best = found.trials[0]
    assert found.chosen == best.parameters
    again = tune(*data, Masil(backbone=None, **{**plain.chosen, "concepts": 4, "power": 1.0}), **{
        **SMALL, "bias": (0.0,), "shrinkage": (plain.chosen["shrinkage"],), "alpha": (plain.chosen["alpha"],)
    })  # fmt: skip
    alone = next(trial for trial in found.trials if trial.changed == {"power": 1.0})
    assert alone.harmonic_mean == pytest.approx(again.trials[0].harmonic_mean)


def test_photos_run_through_the_backbone_once_for_each_way_of_looking_at_them(monkeypatch):
    runs = []
    really = encoder.extract_with
    monkeypatch.setattr(encoder, "extract_with", lambda *given, **how: runs.append(1) or really(*given, **how))
    photos = np.random.default_rng(0).integers(0, 256, (48, 32, 32, 3), dtype=np.uint8)
    labels = [f"class {at % 6}" for at in range(48)]
    model = Masil(create("resnet20", width=0.5), weights=None, concepts=4, device="cpu")
    small = {**SMALL, "alpha": (0.0,), "shrinkage": (1.0,)}
    found = tune(photos, labels, model, **small, varied={"power": (1.0,), "balance": (0.0, 0.5)})
    assert len(found.trials) == 2 + 3
    assert len(runs) == 1
    tune(photos, labels, model, **small, varied={"power": (1.0,), "crops": (1, 2)})
    assert len(runs) == 1 + 3
