"""The whole model as one graph."""

import json

import numpy as np
import onnxruntime
import pytest
import torch

from masil.backbones import create
from masil.collapse import Projection
from masil.data import Framing
from masil.errors import DeviceError, InputError
from masil.learner import Masil, export_onnx

SQUARE = Framing(16, 16)


@pytest.fixture(scope="module")
def backbone():
    return create("resnet20", seed=1, framing=SQUARE)


def pictures(n, seed=0):
    return torch.randint(0, 256, (n, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def learner(backbone, k=4, **params):
    labels = [f"k{at % k}" for at in range(6 * k)]
    return Masil(backbone, concepts=4, device="cpu", **params).fit(pictures(6 * k), labels)


@pytest.mark.parametrize(
    ("k", "params"), [(4, {"bias": 0.02}), (2, {"power": 1.0}), (4, {"embedding": Projection(64, 6, hidden=(9,))})]
)
def test_it_computes_what_the_learner_does(backbone, k, params):
    model = learner(backbone, k, **params)
    model.learn(pictures(3, seed=1), ["new"] * 3)
    session = onnxruntime.InferenceSession(export_onnx(model), providers=["CPUExecutionProvider"])
    asked = pictures(5, seed=2)
    found = session.run(None, {"pixels": asked.numpy()})
    np.testing.assert_allclose(found[0], model.predict_proba(asked), atol=1e-3)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["labels"]) == [*(f"k{at}" for at in range(k)), "new"]
    assert json.loads(about["preprocessing"])["centre_crop"] == 16
    if model.base_.unknown_detector is None:
        assert [each.name for each in session.get_outputs()] == ["probabilities"]
    else:
        np.testing.assert_allclose(found[1], model.known(asked), atol=1e-3)
        assert json.loads(about["unknown_below"]) == model.base_.unknown_detector.threshold


def test_a_graph_that_computes_something_else_is_refused(backbone, monkeypatch):
    monkeypatch.setattr("masil.learner.onnx.TOLERANCE", 0.0)
    with pytest.raises(DeviceError, match="ONNX Runtime computes something else with the graph than PyTorch"):
        export_onnx(learner(backbone), pictures(1, seed=3))


def test_activations_have_no_graph(model):
    with pytest.raises(InputError, match="This model takes activations and has no backbone"):
        export_onnx(model)
