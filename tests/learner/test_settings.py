"""What has no effect is said: contradictions are refused, useless settings are warned of, and they are useless."""

import math

import pytest
import torch

from masil.backbones import create
from masil.collapse import Projection
from masil.errors import InputError, NoEffectWarning
from masil.learner import Masil, tune


def taught(make, world, **params):
    model = make(**{"alpha": 0.4, **params}).fit(*world.draw(range(6), 8))
    return model.learn(*world.draw(range(6, 8), 3, seed=1))


IDLE = [
    ({"calibration": None, "alpha": "auto"}, {"alpha": 0.9}, "with calibration=None concepts take no part"),
    ({"calibration": "teen", "alpha": "auto"}, {"reading": "literal"}, "with calibration='teen' concepts take no part"),
    ({"calibration": None, "alpha": "auto"}, {"solver": "sgdr"}, "concepts take no part"),
    ({"alpha": math.inf}, {"reading": "literal"}, "with alpha=inf class vectors are made of concepts alone"),
    ({"alpha": math.inf}, {"solver": "sgdr"}, "with alpha=inf class vectors"),
    ({}, {"teen": 0.9}, "with calibration='concepts' novel vectors are not drawn to base ones"),
    ({"embedding": "linear"}, {"shrinkage": 9.0}, "it is whitening's, and `embedding` is another"),
    ({"embedding": Projection(24, 16, hidden=())}, {"shrinkage": "auto"}, "it is whitening's"),
    ({}, {"side": 3}, "it is that of crops, and `crops` is 0"),
    ({}, {"device": "cuda"}, "there is no backbone to run on it"),
]


@pytest.mark.parametrize(("params", "idle", "reason"), IDLE, ids=lambda value: str(value)[:40])
def test_a_setting_that_is_warned_of_changes_nothing(make, world, params, idle, reason):
    (name,) = idle
    with pytest.warns(NoEffectWarning, match=rf"`{name}=.*` has no effect: .*{reason}") as warned:
        with_it = taught(make, world, **{**params, **idle})
    assert {warning.filename for warning in warned} == {__file__}  # whoever called `fit` and `learn`
    without = taught(make, world, **params)
    torch.testing.assert_close(with_it.memory_.vectors, without.memory_.vectors)
    torch.testing.assert_close(with_it.offsets_, without.offsets_)


@pytest.mark.parametrize(
    "params",
    [{"reading": "literal"}, {"solver": "sgdr"}, {"alpha": 0.9}, {"calibration": "teen", "teen": 0.9, "alpha": "auto"},
     {"calibration": "both", "teen": 0.1, "reading": "literal"}, {"shrinkage": 9.0}, {"device": "cpu"}, {"bias": 0.1}],
    ids=str,
)  # fmt: skip
def test_settings_that_count_are_taken_without_a_word(make, world, params):
    taught(make, world, **params)  # warnings are errors


def test_contradictions_are_refused(world):
    data = world.draw(range(6), 8)
    with pytest.raises(InputError, match="`crops` is 10, but without a backbone there are activations and no images"):
        Masil(backbone=None, crops=10).fit(*data)
    with pytest.raises(InputError, match="`crops` is 10, but without a backbone"):
        tune(*data, Masil(backbone=None, crops=10))
    with pytest.raises(
        InputError, match="`weights` are 'w.safetensors', but only a backbone that is given by its name"
    ):
        Masil(create("resnet20"), weights="w.safetensors").fit(*data)


def test_what_tuning_cannot_try_is_said(world):
    data, few = world.draw(range(8), 8), {"bias": (0.0,), "plays": 1, "shots": 3}
    with pytest.warns(NoEffectWarning, match="`shrinkage` is not tried"):
        found = tune(*data, Masil(backbone=None, concepts=4, embedding="linear"), shrinkage=(1.0, 3.0), **few)
    assert {trial.shrinkage for trial in found.trials} == {"sampling"}
    with pytest.warns(NoEffectWarning, match="`alpha` is not tried"):
        found = tune(*data, Masil(backbone=None, concepts=4, calibration=None), alpha=(0.0, 1.0), **few)
    assert {trial.alpha for trial in found.trials} == {"auto"}
    found = tune(*data, Masil(backbone=None, concepts=4, calibration=None, embedding="linear"), **few)
    assert len(found.trials) == 1


def test_images_without_labels_are_refused(tmp_path):
    pixels = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8).numpy()
    with pytest.raises(InputError, match="Labels must be a sequence with one label for each image, but are None"):
        Masil(create("resnet20"), device="cpu").fit(pixels)
