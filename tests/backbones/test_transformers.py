"""Models of `transformers`, randomly initialised and small: no hub is needed to see that they fit."""

import json
import sys

import pytest
import torch

from masil.backbones import create, from_transformers, open_engine
from masil.data import Framing
from masil.errors import InputError, StorageError, UnknownNameError

transformers = pytest.importorskip("transformers", reason="needs the extra `transformers`")

SIDE = 32
PIXELS = torch.randint(0, 256, (3, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": SIDE, "patch_size": 8}


def vit():
    return transformers.ViTConfig(**VIT, intermediate_size=64)


CONFIGS = {
    "ViT": (vit, 64, "token", "split"),
    "DINOv2": (lambda: transformers.Dinov2Config(**VIT), 64, "token", "split"),
    "CLIP vision": (lambda: transformers.CLIPVisionConfig(**VIT, intermediate_size=64), 64, "model", "split"),
    "ResNet": (
        lambda: transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
        16,
        "mean",
        "keep",
    ),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_configuration_becomes_a_backbone_which_every_engine_runs_and_its_configuration_rebuilds(kind):
    make, features, pool, non_negative = CONFIGS[kind]
    backbone = from_transformers(make(), framing=Framing(SIDE, SIDE), seed=1)
    assert (backbone.features, backbone.pool, backbone.non_negative) == (features, pool, non_negative)
    x = backbone.preprocess(PIXELS)
    activations, maps = backbone(x), backbone.maps(x)
    assert activations.shape == (3, features)
    assert maps.shape == (3, features, 4, 4)
    assert float(activations.min()) >= 0
    assert float(maps.min()) >= 0
    assert not any(weight.requires_grad for weight in backbone.parameters())
    assert backbone(torch.randn(1, 3, 48, 48, generator=torch.Generator().manual_seed(0))).shape == (1, features)
    rows = open_engine(backbone, engine="onnxruntime", device="cpu").run(PIXELS)
    torch.testing.assert_close(rows, activations, atol=1e-4, rtol=1e-3)
    again = create(**json.loads(json.dumps(backbone.config())))
    assert again.fingerprint() != backbone.fingerprint()
    again.load_state_dict(backbone.state_dict())
    assert again.fingerprint() == backbone.fingerprint()
    assert torch.equal(again(x), backbone(x))


def test_what_is_pooled():
    token, mean = (from_transformers(vit(), pool=pool) for pool in ("token", "mean"))
    x = token.preprocess(PIXELS)
    last = token.model(x).last_hidden_state
    torch.testing.assert_close(token(x)[:, :32] - token(x)[:, 32:], last[:, 0])
    torch.testing.assert_close(mean(x)[:, :32] - mean(x)[:, 32:], last[:, 1:].mean(1), atol=1e-5, rtol=1e-4)
    # Patch 6 is row 1, column 2 of the 4 × 4 map.
    torch.testing.assert_close(token.maps(x)[:, :32, 1, 2], last[:, 1 + 6].clamp_min(0))


def test_a_model_with_text_gives_its_eyes():
    config = transformers.CLIPConfig(
        vision_config={**VIT, "intermediate_size": 64},
        text_config={
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "intermediate_size": 16,
            "vocab_size": 50,
        },
    )
    backbone = from_transformers(transformers.AutoModel.from_config(config))
    assert backbone.features == 64
    assert not any("text" in key for key in backbone.state_dict())


def test_a_folder_with_its_own_preprocessing(tmp_path):
    model = transformers.AutoModel.from_config(vit())
    model.save_pretrained(tmp_path)
    own = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"shortest_edge": 40},
        "do_center_crop": True,
        "crop_size": {"height": 32, "width": 32},
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [0.4, 0.5, 0.6],
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(own))
    backbone = from_transformers(str(tmp_path))
    assert (backbone.framing, backbone.mean, backbone.std) == (Framing(40, 32), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert from_transformers(tmp_path, mean=(0.5, 0.5, 0.5)).mean == (0.5, 0.5, 0.5)
    assert torch.equal(
        backbone(backbone.preprocess(PIXELS)),
        from_transformers(model, framing=Framing(40, 32), mean=own["image_mean"], std=own["image_std"])(
            backbone.preprocess(PIXELS)
        ),
    )


def test_the_start_is_the_seeds():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = from_transformers(vit(), seed=2).fingerprint()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert from_transformers(vit(), seed=2).fingerprint() == first


def test_models_that_do_not_fit(tmp_path):
    text = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16, vocab_size=50
    )
    with pytest.raises(InputError, match="BertModel takes input_ids, not images"):
        from_transformers(text)
    with pytest.raises(StorageError, match=r"The model '.*empty' cannot be loaded .*Check its name and the network"):
        (tmp_path / "empty").mkdir()
        from_transformers(tmp_path / "empty")
    with pytest.raises(UnknownNameError, match="no pooling called 'men'; did you mean 'mean'"):
        from_transformers(vit(), pool="men")
    with pytest.raises(InputError, match="'ViTModel' gives negative activations .*'split'"):
        from_transformers(vit(), non_negative="keep")
    with pytest.raises(InputError, match="ResNetModel has no class token; use pool='mean'"):
        from_transformers(CONFIGS["ResNet"][0](), pool="token", framing=Framing(SIDE, SIDE))


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"are an extra of masil; .* pip install -e '.\[transformers\]'"):
        from_transformers("some/model")
