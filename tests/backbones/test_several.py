"""Several backbones by one name: activations side by side, found again by name, in a model file and on the engines."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from masil.backbones import ActivationStore, ModuleBackbone, SeveralBackbones, create
from masil.data import Framing
from masil.errors import InputError, UnknownNameError
from masil.learner import Masil

NAME = "resnet20+resnet12"


def small(**options):
    return create(NAME, width=0.125, **options).requires_grad_(False)


def test_activations_stand_side_by_side_in_the_framing_of_the_larger(noise) -> None:
    both, parts = small(), [create(name, width=0.125).requires_grad_(False) for name in NAME.split("+")]
    assert (both.name, both.features, both.framing) == (NAME, 8 + 80, Framing(92, 84))
    pixels = noise(3, 84)
    expected = torch.cat([part(part.preprocess(pixels)) for part in parts], 1)
    torch.testing.assert_close(both(both.preprocess(pixels)), expected, atol=1e-5, rtol=1e-4)
    assert not both.training
    assert create("efficientnet_lite0+efficientnet_lite2", width=0.125).framing == Framing(297, 260)
    assert small(framing=(40, 32)).framing == Framing(40, 32)


def test_maps_have_the_size_of_the_largest(noise) -> None:
    both = small()
    x = both.preprocess(noise(2, 64))
    maps = both.maps(x)
    assert maps.shape == (2, 88, 16, 16)  # 64 / 4; ResNet-12's map of 64 / 16 is made larger
    torch.testing.assert_close(maps.mean((2, 3)), both(x), atol=1e-5, rtol=1e-4)


def test_its_configuration_rebuilds_it_and_its_fingerprint_sees_every_part() -> None:
    both = small(seed=3, framing=(40, 32))
    again = create(**json.loads(json.dumps(both.config())))
    again.load_state_dict(both.state_dict())
    assert again.fingerprint() == both.fingerprint()
    others = [small(seed=4, framing=(40, 32)), small(seed=3), create("resnet12+resnet20", width=0.125, seed=3)]
    assert len({backbone.fingerprint() for backbone in (both, *others)}) == 4


def test_parts_may_be_one_s_own(noise) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    both = SeveralBackbones([create("resnet20", width=0.125), ModuleBackbone(module, Framing(20, 16), name="mine")])
    assert (both.name, both.features) == ("resnet20+module:mine", 12)
    assert both(both.preprocess(noise(2))).shape == (2, 12)
    with pytest.raises(InputError, match="'module:mine' was made from a module of your own"):
        create(**both.config())


@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
def test_it_runs_on_every_engine_and_is_stored(tmp_path: Path, images, engine: str) -> None:
    both, given = small(framing=(16, 16)), images(5)
    rows = ActivationStore(tmp_path).get(both, given, engine=engine, device="cpu")
    expected = both(both.preprocess(torch.from_numpy(given.source.pixels)))
    torch.testing.assert_close(rows, expected, atol=1e-5, rtol=1e-3)
    assert [file.name.split("-")[0] for file in tmp_path.glob("*.npy")] == ["resnet20_resnet12"]


def test_weights_for_all_parts(tmp_path: Path) -> None:
    save_file(small(seed=7).state_dict(), tmp_path / "w.safetensors")
    assert small(weights=tmp_path / "w.safetensors").fingerprint() == small(seed=7).fingerprint()
    twice = create("efficientnet_lite0+efficientnet_lite0", weights="imagenet")
    alone = create("efficientnet_lite0", weights="imagenet").state_dict()
    for part in twice.members():
        assert all(torch.equal(value, alone[key]) for key, value in part.state_dict().items())
    with pytest.raises(InputError, match="No package brings ImageNet weights for 'resnet20'"):
        small(weights="imagenet")


def test_a_model_file_finds_it_by_name(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 30, (16, 32, 32, 3), np.uint8)
    pictures = [noise[i] + np.uint8(60 * (i // 4)) for i in range(16)]
    labels = [f"class {i // 4}" for i in range(16)]
    model = Masil("resnet20+resnet18_cifar", weights=None, concepts=4, device="cpu").fit(pictures, labels)
    model.save(tmp_path / "model.masil")
    again = Masil.load(tmp_path / "model.masil", device="cpu")
    assert again.encoder_.backbone.fingerprint() == model.encoder_.backbone.fingerprint()
    np.testing.assert_allclose(again.predict_proba(pictures), model.predict_proba(pictures), atol=1e-5)


def test_names_that_are_none() -> None:
    with pytest.raises(UnknownNameError, match="no backbone called 'resnet_12'; did you mean 'resnet12'"):
        create("resnet20+resnet_12")
    with pytest.raises(InputError, match="'resnet12' has no option 'witdh'; did you mean 'width'"):
        create("resnet12+resnet20", witdh=2)
    with pytest.raises(InputError, match="Several backbones are at least two, but there are 1"):
        SeveralBackbones([create("resnet20")])
