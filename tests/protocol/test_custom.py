import json
from pathlib import Path

import numpy as np
import pytest
import torch

from masil.data import ArrayImages, Dataset
from masil.errors import InputError, StorageError
from masil.protocol import Protocol, cut_protocol, read_protocol


def test_a_protocol_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "birds.json"
    file.write_text(json.dumps({"dataset": "cub200", "base_classes": 3, "sessions": 1, "way": 2, "shot": 5}))
    assert read_protocol(file) == Protocol("birds", "cub200", base_classes=3, sessions=1, way=2, shot=5)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"name": "b", "order": [4, 3, 2, 1, 0]}))
    assert read_protocol(file).order == (4, 3, 2, 1, 0)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "should hold a table of values"),
        ('{"datasets": "x"}', "a protocol has no 'datasets'; did you mean 'dataset'?"),
        ('{"dataset": "x"}', "a protocol needs 'base_classes'"),
        ('{"dataset": "x", "base_classes": 0, "sessions": 1, "way": 1, "shot": 1}', "base_classes = 0"),
    ],
)
def test_a_wrong_file_is_a_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
        read_protocol(tmp_path / "p.json")
    with pytest.raises(StorageError, match="There is no file"):
        read_protocol(tmp_path / "q.json")


def test_a_data_set_is_cut_into_sessions(tmp_path: Path) -> None:
    images = ArrayImages(np.zeros((8, 3, 2, 2), dtype=np.uint8), torch.arange(8))
    dataset = Dataset("eight", tuple("abcdefgh"), images, images)
    cut = cut_protocol(dataset, tmp_path / "photos", base=3, way=2, shot=1)
    assert (cut.name, cut.base_classes, cut.sessions, cut.way, cut.classes) == ("photos", 3, 2, 2, 7)
    with pytest.raises(InputError, match="has 8 classes, which is too few for 7 base classes and a session of 2"):
        cut_protocol(dataset, tmp_path / "photos", base=7, way=2, shot=1)
