"""A module of the user's own as a backbone: pooled or a map, made >= 0 as asked, refused with a sentence."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from masil.backbones import ActivationStore, ModuleBackbone, SeveralBackbones, create, open_engine
from masil.data import Framing
from masil.errors import InputError, UnknownNameError
from masil.learner import Masil

FRAMING = Framing(12, 8)
PIXELS = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def conv(seed=0):
    layer = nn.Conv2d(3, 6, 3)
    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(layer.bias)
    return layer


def pooled():
    return nn.Sequential(conv(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_a_feature_map_is_kept_and_averaged():
    backbone = ModuleBackbone(nn.Sequential(conv(), nn.ReLU()), FRAMING, name="mine")
    x = backbone.preprocess(PIXELS)
    assert backbone.name == "module:mine"
    assert backbone.features == 6
    assert backbone.maps(x).shape == (3, 6, 6, 6)
    torch.testing.assert_close(backbone(x), torch.relu(conv()(x)).mean((2, 3)))
    backbone = ModuleBackbone(nn.Sequential(pooled(), nn.ReLU()), FRAMING)  # pooled, it is a map of one place
    assert backbone.maps(x).shape == (3, 6, 1, 1)
    torch.testing.assert_close(backbone(x), torch.relu(pooled()(x)))


def test_signed_activations_become_non_negative_as_asked():
    x = ModuleBackbone(pooled(), FRAMING, non_negative="relu").preprocess(PIXELS)
    signed = pooled()(x)
    cut, both = (ModuleBackbone(pooled(), FRAMING, non_negative=way) for way in ("relu", "split"))
    torch.testing.assert_close(cut(x), signed.clamp_min(0))
    torch.testing.assert_close(both(x), torch.cat((signed.clamp_min(0), (-signed).clamp_min(0)), 1))
    torch.testing.assert_close(both.maps(x)[:, :6] - both.maps(x)[:, 6:], signed[..., None, None])  # nothing is lost
    assert (cut.features, both.features) == (6, 12)
    assert cut.fingerprint() != both.fingerprint()


def test_the_module_is_frozen_and_its_fingerprint_sees_every_layer():
    module = nn.Sequential(conv(), nn.BatchNorm2d(6), nn.ReLU()).train()
    backbone = ModuleBackbone(module, FRAMING)
    assert not module.training
    assert not any(weight.requires_grad for weight in backbone.parameters())
    # Layers without weights show in the fingerprint.
    marks = {ModuleBackbone(nn.Sequential(conv(), last), FRAMING).fingerprint() for last in (nn.ReLU(), nn.ReLU6())}
    assert len(marks) == 2


def test_it_runs_on_the_fast_engine():
    backbone = ModuleBackbone(pooled(), FRAMING, name="a/b: c", non_negative="split")
    engine = open_engine(backbone, engine="onnxruntime", device="cpu")
    torch.testing.assert_close(engine.run(PIXELS), backbone(backbone.preprocess(PIXELS)), atol=1e-5, rtol=1e-4)


class Output(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, x):
        return self.what(x)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (lambda x: -x.flatten(1).abs(), r"'mine' gives negative activations \(-[\d.]+ on noise\).*'relu'.*'split'"),
        (lambda x: x.flatten(2).abs(), r"gives the shape \[2, 3, 64\] for 2 images.*\[n d\] or a feature map"),
        (lambda x: x.flatten().abs()[None], r"gives the shape \[1, 384\] for 2 images"),
        (lambda x: {"features": x}, "gives a dict, not a tensor"),
        (lambda x: (x, x), "gives a tuple, not a tensor"),
        (lambda x: x.flatten(1) * torch.nan, "activations that are not finite on noise"),
        (lambda x: x @ torch.zeros(5, 5), r"does not take images of shape \[2, 3, 8, 8\]"),
    ],
)
def test_modules_that_are_no_backbones(what, sentence):
    with pytest.raises(InputError, match=sentence):
        ModuleBackbone(Output(what), FRAMING, name="mine")


NAME = "resnet20+resnet12"


def small(**options):
    return create(NAME, width=0.125, **options).requires_grad_(False)


def test_activations_stand_side_by_side_in_the_framing_of_the_larger(noise):
    both, parts = small(), [create(name, width=0.125).requires_grad_(False) for name in NAME.split("+")]
    assert (both.name, both.features, both.framing) == (NAME, 8 + 80, Framing(92, 84))
    pixels = noise(3, 84)
    expected = torch.cat([part(part.preprocess(pixels)) for part in parts], 1)
    torch.testing.assert_close(both(both.preprocess(pixels)), expected, atol=1e-5, rtol=1e-4)
    assert not both.training
    assert create("efficientnet_lite0+efficientnet_lite2", width=0.125).framing == Framing(297, 260)
    assert small(framing=(40, 32)).framing == Framing(40, 32)


def test_maps_have_the_size_of_the_largest(noise):
    both = small()
    x = both.preprocess(noise(2, 64))
    maps = both.maps(x)
    assert maps.shape == (2, 88, 16, 16)  # 64 / 4; ResNet-12's map of 64 / 16 is made larger
    torch.testing.assert_close(maps.mean((2, 3)), both(x), atol=1e-5, rtol=1e-4)


def test_its_configuration_rebuilds_it_and_its_fingerprint_sees_every_part():
    both = small(seed=3, framing=(40, 32))
    again = create(**json.loads(json.dumps(both.config())))
    again.load_state_dict(both.state_dict())
    assert again.fingerprint() == both.fingerprint()
    others = [small(seed=4, framing=(40, 32)), small(seed=3), create("resnet12+resnet20", width=0.125, seed=3)]
    assert len({backbone.fingerprint() for backbone in (both, *others)}) == 4


def test_parts_may_be_one_s_own(noise):
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    both = SeveralBackbones([create("resnet20", width=0.125), ModuleBackbone(module, Framing(20, 16), name="mine")])
    assert (both.name, both.features) == ("resnet20+module:mine", 12)
    assert both(both.preprocess(noise(2))).shape == (2, 12)
    with pytest.raises(InputError, match="'module:mine' was made from a module of your own"):
        create(**both.config())


@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
def test_it_runs_on_every_engine_and_is_stored(tmp_path, images, engine):
    both, given = small(framing=(16, 16)), images(5)
    rows = ActivationStore(tmp_path).get(both, given, engine=engine, device="cpu")
    expected = both(both.preprocess(torch.from_numpy(given.source.pixels)))
    torch.testing.assert_close(rows, expected, atol=1e-5, rtol=1e-3)
    assert [file.name.split("-")[0] for file in tmp_path.glob("*.npy")] == ["resnet20_resnet12"]


def test_parts_that_see_the_same_square_are_stored_one_by_one(tmp_path, images):
    parts = [create(name, width=0.125, framing=(16, 16)) for name in ("resnet20", "resnet12")]
    both, given, store = SeveralBackbones(parts), images(5), ActivationStore(tmp_path)
    alone = store.get(parts[0], given, engine="torch", device="cpu")
    rows = store.get(both, given, engine="torch", device="cpu")
    assert sorted(file.name.split("-")[0] for file in tmp_path.glob("*.npy")) == ["resnet12", "resnet20"]
    assert torch.equal(rows[:, : alone.shape[1]], alone)  # found again
    torch.testing.assert_close(rows, both(both.preprocess(torch.from_numpy(given.source.pixels))), atol=1e-5, rtol=1e-3)


def test_weights_for_all_parts(tmp_path):
    save_file(small(seed=7).state_dict(), tmp_path / "w.safetensors")
    assert small(weights=tmp_path / "w.safetensors").fingerprint() == small(seed=7).fingerprint()
    twice = create("efficientnet_lite0+efficientnet_lite0", weights="imagenet")
    alone = create("efficientnet_lite0", weights="imagenet").state_dict()
    for part in twice.members():
        assert all(torch.equal(value, alone[key]) for key, value in part.state_dict().items())
    with pytest.raises(InputError, match="No package brings ImageNet weights for 'resnet20'"):
        small(weights="imagenet")


def test_a_model_file_finds_it_by_name(tmp_path):
    noise = np.random.default_rng(0).integers(0, 30, (16, 32, 32, 3), np.uint8)
    pictures = [noise[i] + np.uint8(60 * (i // 4)) for i in range(16)]
    labels = [f"class {i // 4}" for i in range(16)]
    model = Masil("resnet20+resnet18_cifar", weights=None, concepts=4, device="cpu").fit(pictures, labels)
    model.save(tmp_path / "model.masil")
    again = Masil.load(tmp_path / "model.masil", device="cpu")
    assert again.encoder_.backbone.fingerprint() == model.encoder_.backbone.fingerprint()
    np.testing.assert_allclose(again.predict_proba(pictures), model.predict_proba(pictures), atol=1e-5)


def test_names_that_are_none():
    way = "way to make activations non-negative called 'spilt'; did you mean 'split'"
    with pytest.raises(UnknownNameError, match=way):
        ModuleBackbone(pooled(), FRAMING, non_negative="spilt")
    with pytest.raises(UnknownNameError, match="no backbone called 'resnet_12'; did you mean 'resnet12'"):
        create("resnet20+resnet_12")
    with pytest.raises(InputError, match="'resnet12' has no option 'witdh'; did you mean 'width'"):
        create("resnet12+resnet20", witdh=2)
    with pytest.raises(InputError, match="Several backbones are at least two, but there are 1"):
        SeveralBackbones([create("resnet20")])
