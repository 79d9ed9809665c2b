"""Backbones: pixels in, non-negative activations out; extracted once on the fastest engine, and stored."""

from masil.backbones.backbone import Backbone
from masil.backbones.efficientnet import EfficientNetLite
from masil.backbones.engine import Engine
from masil.backbones.engines import open_engine
from masil.backbones.extraction import extract, refuse_impossible
from masil.backbones.module import ModuleBackbone
from masil.backbones.registry import BACKBONES, create
from masil.backbones.resnet import ResNet
from masil.backbones.resnet12 import ResNet12
from masil.backbones.store import ActivationStore
from masil.backbones.transformers_adapter import TransformersBackbone, from_transformers
from masil.backbones.weights import load_weights

__all__ = [
    "BACKBONES",
    "ActivationStore",
    "Backbone",
    "EfficientNetLite",
    "Engine",
    "ModuleBackbone",
    "ResNet",
    "ResNet12",
    "TransformersBackbone",
    "create",
    "extract",
    "from_transformers",
    "load_weights",
    "open_engine",
    "refuse_impossible",
]
