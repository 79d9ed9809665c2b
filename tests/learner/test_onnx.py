"""The whole model as one graph."""

import json

import numpy as np
import onnxruntime
import pytest
import torch

from masil.collapse import Projection
from masil.errors import DeviceError, InputError
from masil.learner import Masil, export_onnx


@pytest.fixture
def learner(backbone, pictures):
    def make(k=4, **params):
        return Masil(backbone, concepts=4, device="cpu", **params).fit(*pictures(range(k), 6))

    return make


@pytest.mark.parametrize(
    ("k", "params"), [(4, {"bias": 0.02}), (2, {"power": 1.0}), (4, {"embedding": Projection(64, 6, hidden=(9,))})]
)
def test_it_computes_what_the_learner_does(learner, pictures, k, params):
    model = learner(k, **params)
    model.learn(*pictures(range(7, 8), 3, seed=1))
    session = onnxruntime.InferenceSession(export_onnx(model), providers=["CPUExecutionProvider"])
    asked, _ = pictures(range(5), 1, seed=2)
    found = session.run(None, {"pixels": asked.transpose(0, 3, 1, 2).copy()})
    np.testing.assert_allclose(found[0], model.predict_proba(asked), atol=1e-3)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["labels"]) == [*(f"k{at}" for at in range(k)), "k7"]
    assert json.loads(about["preprocessing"])["centre_crop"] == 32
    if model.base_.unknown_detector is None:
        assert [each.name for each in session.get_outputs()] == ["probabilities"]
    else:
        np.testing.assert_allclose(found[1], model.known(asked), atol=1e-3)
        assert json.loads(about["unknown_below"]) == model.base_.unknown_detector.threshold


def test_a_graph_that_computes_something_else_is_refused(learner, monkeypatch):
    monkeypatch.setattr("masil.learner.onnx.TOLERANCE", 0.0)
    with pytest.raises(DeviceError, match="ONNX Runtime computes something else with the graph than PyTorch"):
        export_onnx(learner(), torch.zeros(1, 3, 32, 32, dtype=torch.uint8))


def test_activations_have_no_graph(model):
    with pytest.raises(InputError, match="This model takes activations and has no backbone"):
        export_onnx(model)
