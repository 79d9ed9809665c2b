import json

import numpy as np
import pytest

from masil.data import file_images
from masil.errors import InputError, StorageError
from masil.learner import Masil


def test_info_has_classes_sessions_and_log(masil, birds, known):
    said = masil("info", birds, "--classes", "--log").stdout
    assert "6 classes" in said
    assert "sees through resnet20, thinks in 8 concepts" in said
    assert "bird f" in said
    assert "After its base session it told photos of its classes from others in" in said
    assert "taught" in said
    masil("forget", birds, "bird b", "--by", "ann")
    found = json.loads(masil("info", birds, "--json").stdout)
    assert [each["label"] for each in found["classes"]] == [name for name in known if name != "bird b"]
    assert found["sessions"][0]["images"]["bird a"] == 8
    assert [(each["what"], each["who"]) for each in found["log"]][1:] == [("forgotten", "ann")]
    assert found["backbone"] == "resnet20"
    assert found["bytes"] == birds.stat().st_size
    assert 0.5 < found["tells_unknown_auroc"] <= 1
    with pytest.raises(StorageError, match="There is no model at"):
        masil("info", birds.with_name("none"))


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
    pixels = file_images(tmp_path, files, torch.zeros(len(files))).load(slice(None), model.encoder_.backbone.framing)
    probabilities, seen = session.run(None, {"pixels": pixels.numpy()})
    np.testing.assert_allclose(probabilities, model.predict_proba(files), atol=1e-3)
    np.testing.assert_allclose(seen, model.known(files), atol=1e-3)
    assert json.loads(about["labels"]) == list(known)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="There is no photo in .*empty"):
        masil("export", taught, "--onnx", tmp_path / "new.onnx", "--check", tmp_path / "empty")
    with pytest.raises(StorageError, match="birds.onnx exists already"):
        masil("export", taught, "--onnx", target)
    assert json.loads(masil("export", taught, "--onnx", target, "--force", "--json").stdout)["classes"] == 6
