"""A module of the user's own as a backbone: pooled or a map, made >= 0 as asked, refused with a sentence."""

import pytest
import torch
from torch import nn

from masil.backbones import ModuleBackbone, open_engine
from masil.data import Framing
from masil.errors import InputError, UnknownNameError

FRAMING = Framing(12, 8)
PIXELS = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def conv(seed: int = 0) -> nn.Conv2d:
    layer = nn.Conv2d(3, 6, 3)
    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(layer.bias)
    return layer


def pooled() -> nn.Sequential:
    return nn.Sequential(conv(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_a_feature_map_is_kept_and_averaged() -> None:
    backbone = ModuleBackbone(nn.Sequential(conv(), nn.ReLU()), FRAMING, name="mine")
    x = backbone.preprocess(PIXELS)
    assert backbone.name == "module:mine"
    assert backbone.features == 6
    assert backbone.maps(x).shape == (3, 6, 6, 6)
    torch.testing.assert_close(backbone(x), torch.relu(conv()(x)).mean((2, 3)))


def test_pooled_activations_are_a_map_of_one_place() -> None:
    backbone = ModuleBackbone(nn.Sequential(pooled(), nn.ReLU()), FRAMING)
    x = backbone.preprocess(PIXELS)
    assert backbone.maps(x).shape == (3, 6, 1, 1)
    torch.testing.assert_close(backbone(x), torch.relu(pooled()(x)))


def test_signed_activations_become_non_negative_as_asked() -> None:
    x = ModuleBackbone(pooled(), FRAMING, non_negative="relu").preprocess(PIXELS)
    signed = pooled()(x)
    cut, both = (ModuleBackbone(pooled(), FRAMING, non_negative=way) for way in ("relu", "split"))
    torch.testing.assert_close(cut(x), signed.clamp_min(0))
    torch.testing.assert_close(both(x), torch.cat((signed.clamp_min(0), (-signed).clamp_min(0)), 1))
    torch.testing.assert_close(both.maps(x)[:, :6] - both.maps(x)[:, 6:], signed[..., None, None])  # nothing is lost
    assert (cut.features, both.features) == (6, 12)
    assert cut.fingerprint() != both.fingerprint()


def test_the_module_is_frozen() -> None:
    module = nn.Sequential(conv(), nn.BatchNorm2d(6), nn.ReLU()).train()
    backbone = ModuleBackbone(module, FRAMING)
    assert not module.training
    assert not any(weight.requires_grad for weight in backbone.parameters())


def test_layers_without_weights_show_in_the_fingerprint() -> None:
    marks = {ModuleBackbone(nn.Sequential(conv(), last), FRAMING).fingerprint() for last in (nn.ReLU(), nn.ReLU6())}
    assert len(marks) == 2


def test_it_runs_on_the_fast_engine() -> None:
    backbone = ModuleBackbone(pooled(), FRAMING, name="a/b: c", non_negative="split")
    engine = open_engine(backbone, engine="onnxruntime", device="cpu")
    torch.testing.assert_close(engine.run(PIXELS), backbone(backbone.preprocess(PIXELS)), atol=1e-5, rtol=1e-4)


class Output(nn.Module):
    def __init__(self, what) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: torch.Tensor):
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
def test_modules_that_are_no_backbones(what, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ModuleBackbone(Output(what), FRAMING, name="mine")


def test_an_unknown_way() -> None:
    with pytest.raises(
        UnknownNameError, match="way to make activations non-negative called 'spilt'; did you mean 'split'"
    ):
        ModuleBackbone(pooled(), FRAMING, non_negative="spilt")
