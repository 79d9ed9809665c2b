"""Any vision model of the `transformers` library (ViT, DINOv2, CLIP, ResNet …) as a frozen backbone, by name or object.

The only file that imports `transformers`, and only when it is called; the extra `transformers` brings it.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, final

import torch
from torch import Tensor

from masil.backbones.backbone import IMAGENET_MEAN, IMAGENET_STD, Backbone
from masil.backbones.module import noise_images, way_to_non_negative
from masil.data import Framing
from masil.errors import InputError, StorageError, lookup
from masil.wording import missing_extra

# Where the model's own pooling was trained with it and is better than one of its last tokens.
POOLED_BY_THE_MODEL = ("clip_vision_model", "siglip_vision_model")
POOLS = ("auto", "token", "mean", "model")
# Entries of a configuration that say where the weights came from, not what the model is.
_PASSING = ("_name_or_path", "transformers_version", "architectures", "dtype")


def from_transformers(
    source: Any, *, framing: Framing | None = None, mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None, pool: str = "auto", non_negative: str = "auto", seed: int = 0,
) -> TransformersBackbone:  # fmt: skip
    """Make a backbone from a model's name or folder, from a configuration (random weights by `seed`), or from a model.

    By name, framing and normalisation are read from the model's own preprocessor file where it has one.

    `pool` says which of its outputs are the activations: "token" (the first token of the last layer, the class token),
    "mean" (over all places of the last layer) or "model" (the model's own pooled output). "auto" is "model" for CLIP
    and SigLIP, "token" where there is a class token, else "mean".

    `non_negative` says how they become >= 0: "keep" (they are), "relu", or "split", [relu(a), relu(−a)] with twice the
    features. "auto" is "keep" where noise gives no negative value (a ResNet ends with a ReLU), else "split".
    """
    library = _library()
    lookup("pooling", pool, dict.fromkeys(POOLS))
    model = source
    values: Mapping[str, Any] = {}
    if isinstance(source, str | Path):
        model, values = _pretrained(library, str(source))
    elif isinstance(source, library.PretrainedConfig):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = library.AutoModel.from_config(source)
    vision = model.vision_model if hasattr(model.config, "vision_config") else model
    if getattr(vision, "main_input_name", "pixel_values") != "pixel_values":
        raise InputError(f"{type(model).__name__} takes {vision.main_input_name}, not images; it is no vision model.")
    mean, std = mean or values.get("image_mean") or IMAGENET_MEAN, std or values.get("image_std") or IMAGENET_STD
    square = framing or _framing(values, vision.config)
    return TransformersBackbone(vision, square, (mean, std), pool=pool, non_negative=non_negative)


def rebuild(config: Mapping[str, Any], **options: Any) -> TransformersBackbone:
    """Build a model of `transformers`, with random weights, from the plain values that `config()` gave."""
    values = {key: value for key, value in config.items() if key != "model_type"}
    return from_transformers(_library().AutoConfig.for_model(config["model_type"], **values), **options)


@final
class TransformersBackbone(Backbone):
    """A model of `transformers`, frozen; `from_transformers` makes it and describes its choices."""

    def __init__(
        self, vision: Any, framing: Framing, normalisation: tuple[Sequence[float], Sequence[float]], pool: str,
        non_negative: str,
    ) -> None:  # fmt: skip
        super().__init__("transformers", 0, framing, *normalisation)
        self.model = vision.float().eval().requires_grad_(False)
        self._stretches = "interpolate_pos_encoding" in inspect.signature(vision.forward).parameters
        with torch.no_grad():
            output = self._run(noise_images(framing).to(self.model.device))
        if pool == "auto" and vision.config.model_type in POOLED_BY_THE_MODEL:
            pool = "model"
        elif pool == "auto":
            pool = "token" if _extra_tokens(output.last_hidden_state) else "mean"
        self.pool = pool
        pooled = self._pooled(output)
        if non_negative == "auto":
            non_negative = "split" if float(pooled.min()) < 0 else "keep"
        self.non_negative = non_negative
        self._to_non_negative = way_to_non_negative(non_negative, pooled, type(vision).__name__)
        self.features = self._to_non_negative(pooled).shape[1]

    def maps(self, x: Tensor) -> Tensor:
        """Give the last layer's tokens as a map [n d h w], without class and register tokens, made >= 0."""
        return self._to_non_negative(_grid(self._run(x).last_hidden_state))

    def forward(self, x: Tensor) -> Tensor:
        """Give the pooled output [n d], made >= 0."""
        if self.pool == "mean":
            return super().forward(x)
        return self._to_non_negative(self._pooled(self._run(x)))

    def config(self) -> dict[str, Any]:
        """Add the model's configuration and the two choices."""
        model = json.loads(self.model.config.to_json_string(use_diff=False))
        plain = {key: value for key, value in model.items() if key not in _PASSING}
        return {**super().config(), "config": plain, "pool": self.pool, "non_negative": self.non_negative}

    def _run(self, x: Tensor) -> Any:
        # Position embeddings are stretched where images have another size; models without the switch do so unasked.
        usual = getattr(self.model.config, "image_size", None)
        stretch = {"interpolate_pos_encoding": True} if self._stretches and x.shape[2] != usual else {}
        return self.model(x, **stretch)

    def _pooled(self, output: Any) -> Tensor:
        last: Tensor = output.last_hidden_state
        if self.pool == "model":
            pooled: Tensor = output.pooler_output
            return pooled.flatten(1)
        if self.pool == "mean":
            return _grid(last)
        if not _extra_tokens(last):
            raise InputError(f"{type(self.model).__name__} has no class token; use pool='mean'.")
        return last[:, 0]


def _library() -> ModuleType:
    try:
        import transformers
    except ImportError as error:
        raise InputError(missing_extra("Models of `transformers` are", "transformers")) from error
    return transformers


def _pretrained(library: ModuleType, name: str) -> tuple[Any, Mapping[str, Any]]:
    """Load a model, and its preprocessor file where there is one."""
    try:
        model = library.AutoModel.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).split("\n")[0][:200]
        raise StorageError(
            f"The model '{name}' cannot be loaded ({reason}). Check its name and the network, or give a local folder."
        ) from error
    with suppress(OSError, ValueError):
        return model, library.ImageProcessingMixin.get_image_processor_dict(name)[0]
    return model, {}


def _framing(values: Mapping[str, Any], config: Any) -> Framing:
    """Give the framing of a preprocessor file, else the square that the model was trained on."""
    resize, crop = _side(values.get("size")), _side(values.get("crop_size"))
    if not values.get("do_center_crop", crop is not None):
        crop = None
    usual = getattr(config, "image_size", None)
    side = crop or resize or (usual if isinstance(usual, int) else 224)
    return Framing(max(resize or side, side), side)


def _side(size: Any) -> int | None:
    """Read 224, {"shortest_edge": 224} or {"height": 224, "width": 224}."""
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or size.get("height")
    return int(size) if size else None


def _extra_tokens(last: Tensor) -> int:
    """Count the tokens [n t d] before those of the patches, which make a square: t = extra + h². A map has none."""
    tokens = int(last.shape[1])
    return tokens - math.isqrt(tokens) ** 2 if last.ndim == 3 else 0


def _grid(last: Tensor) -> Tensor:
    """Lay the patch tokens [n t d] out as a map [n d h w]; a map stays as it is."""
    if last.ndim == 4:
        return last
    patches = last[:, _extra_tokens(last) :]
    side = math.isqrt(int(patches.shape[1]))
    return patches.transpose(1, 2).reshape(len(last), -1, side, side)
