import json

import numpy as np
import pytest

from masil.data import FileImages
from masil.errors import StorageError
from masil.learner import Masil


def test_the_graph_answers_as_the_model_does(masil, photos, taught, tmp_path, known):
    import onnxruntime
    import torch

    test = photos(tmp_path / "test", known, 2, seed=5)
    target = tmp_path / "birds.onnx"
    done = masil("export", taught, "--onnx", target, "--check", test)
    assert done.exit_code == 0, done.output
    assert "ONNX Runtime computes the same as PyTorch with it, on 12 photos and noise." in done.stdout
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    files = sorted(map(str, test.glob("*/*.png")))
    framing = json.loads(about["preprocessing"])
    model = Masil.load(taught, device="cpu")
    assert framing["centre_crop"] == model.encoder_.backbone.framing.crop
    pixels = FileImages(tmp_path, files, torch.zeros(len(files))).load(slice(None), model.encoder_.backbone.framing)
    probabilities, seen = session.run(None, {"pixels": pixels.numpy()})
    np.testing.assert_allclose(probabilities, model.predict_proba(files), atol=1e-3)
    np.testing.assert_allclose(seen, model.known(files), atol=1e-3)
    assert json.loads(about["labels"]) == list(known)
    with pytest.raises(StorageError, match="birds.onnx exists already"):
        raise masil("export", taught, "--onnx", target).exception
    assert json.loads(masil("export", taught, "--onnx", target, "--force", "--json").stdout)["classes"] == 6
