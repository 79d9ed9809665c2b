"""Backbones by name."""

import json

import pytest
import torch

from masil.backbones import BACKBONES, ModuleBackbone, create
from masil.data import Framing
from masil.errors import InputError, UnknownNameError

BUILT_IN = sorted(set(BACKBONES) - {"transformers"})


@pytest.mark.parametrize("name", BUILT_IN)
def test_config_rebuilds_the_backbone(name: str) -> None:
    backbone = create(name, width=0.25, framing=Framing(40, 36), mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.1))
    again = create(**json.loads(json.dumps(backbone.config())))
    assert again.fingerprint() == backbone.fingerprint()
    assert (again.name, again.framing, again.mean, again.features) == (
        name,
        Framing(40, 36),
        (0.4, 0.5, 0.6),
        backbone.features,
    )
    assert not again.training


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_backbone_keeps_its_word(name: str) -> None:
    backbone = create(name, width=0.25)
    pixels = torch.randint(0, 256, (2, 3, 40, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        activations = backbone(backbone.preprocess(pixels))
    assert activations.shape == (2, backbone.features)
    assert float(activations.min()) >= 0
    assert float(activations.max()) > 0


def test_whole_numbers_are_numbers() -> None:
    assert create("resnet20", width=1).fingerprint() == create("resnet20", width=1.0).fingerprint()


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="no backbone called 'resnet_18'; did you mean 'resnet18'"):
        create("resnet_18")
    with pytest.raises(InputError, match="'resnet18' has no option 'witdh'; did you mean 'width'"):
        create("resnet18", witdh=2)


def test_a_module_of_ones_own_has_no_name_to_rebuild_it_from() -> None:
    backbone = ModuleBackbone(
        torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.ReLU()), Framing(8, 8)
    )
    with pytest.raises(InputError, match="'module:custom' was made from a module of your own"):
        create(**backbone.config())
