"""The engine in PyTorch, and what every engine refuses."""

import pytest
import torch

from masil.backbones import create
from masil.backbones.engine import TorchEngine, frozen_copy
from masil.errors import InputError

PIXELS = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
CPU = torch.device("cpu")


def test_it_computes_what_the_backbone_computes_in_evaluation_mode() -> None:
    backbone = create("resnet20", width=0.5)
    expected = backbone(backbone.preprocess(PIXELS)).detach()
    found = TorchEngine(backbone.train(), CPU).run(PIXELS)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert backbone.training
    assert not found.requires_grad


def test_the_copy_does_not_train_along() -> None:
    backbone = create("resnet20", width=0.5)
    engine = TorchEngine(backbone, CPU)
    before = engine.run(PIXELS)
    with torch.no_grad():
        backbone.conv1.weight.mul_(3)
    assert torch.equal(engine.run(PIXELS), before)


def test_frozen_copies_are_float32() -> None:
    copy = frozen_copy(create("resnet20", width=0.5).half().train())
    assert {weight.dtype for weight in copy.parameters()} == {torch.float32}
    assert copy.preprocess(PIXELS).dtype == torch.float32
    assert not any(weight.requires_grad for weight in copy.parameters())


@pytest.mark.parametrize("pixels", [PIXELS / 255, PIXELS[0], PIXELS[:, :1]])
def test_pixels_that_are_none(pixels: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"takes uint8 pixels of shape \[n 3 h w\], not torch.\w+ of shape \["):
        TorchEngine(create("resnet20", width=0.5), CPU).run(pixels)
