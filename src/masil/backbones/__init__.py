"""Backbones: pixels in, non-negative activations out; extracted once on the fastest engine, and stored."""

from masil.backbones.backbone import Backbone, ConvNet, Plan
from masil.backbones.efficientnet import EfficientNetLite
from masil.backbones.engine import Engine, EngineTimes, PendingActivations, engine_times, open_engine
from masil.backbones.extract import MIRRORED, VIEWS, View, extract, extract_with, find_views, refuse_impossible, stream
from masil.backbones.module import JOINT, ModuleBackbone, SeveralBackbones
from masil.backbones.onnx import OnnxRefusedError, open_onnx, run_onnx, trace_onnx
from masil.backbones.registry import BACKBONES, can_rebuild, create, load_weights
from masil.backbones.resnet import ResNet, ResNet12
from masil.backbones.store import ActivationStore
from masil.backbones.transformers import TransformersBackbone, from_transformers
