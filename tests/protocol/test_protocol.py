import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from masil.data import Dataset, array_images
from masil.errors import InputError, StorageError
from masil.protocol import PROTOCOLS, Protocol, cut_protocol, read_protocol

sizes = {"base_classes": st.integers(1, 30), "sessions": st.integers(0, 12), "way": st.integers(1, 9)}
shapes = st.builds(Protocol, name=st.just("any"), dataset=st.just("any"), shot=st.integers(1, 9), **sizes)


@given(shapes)
def test_every_class_is_taught_exactly_once_and_session_of_says_when(protocol):
    taught = [label for session in range(protocol.sessions + 1) for label in protocol.labels(session)]
    assert taught == list(range(protocol.classes))
    for session in range(protocol.sessions + 1):
        own = torch.tensor(protocol.labels(session))
        assert protocol.session_of(own).tolist() == [session] * len(own)
        assert list(protocol.seen(session)) == taught[: protocol.labels(session).stop]


@pytest.mark.parametrize(
    ("name", "base", "sessions", "way", "classes"),
    [
        ("cifar100", 60, 8, 5, 100),
        ("miniimagenet", 60, 8, 5, 100),
        ("cub200", 100, 10, 10, 200),
        ("characters", 32, 6, 5, 62),
        ("omniglot", 1200, 40, 10, 1600),
    ],
)
def test_the_known_protocols_have_the_shapes_of_the_field(name, base, sessions, way, classes):
    protocol = PROTOCOLS[name]
    assert (protocol.base_classes, protocol.sessions, protocol.way, protocol.classes) == (base, sessions, way, classes)
    assert protocol.shot == 5


@pytest.mark.parametrize("field", ["base_classes", "way", "shot"])
def test_sizes_below_one_are_refused(field):
    sizes = {"base_classes": 3, "sessions": 2, "way": 1, "shot": 1} | {field: 0}
    with pytest.raises(InputError, match=f"'mine' has {field} = 0; it needs a whole number >= 1"):
        Protocol("mine", "any", **sizes)


def test_an_order_names_each_class_once_and_all_of_them():
    with pytest.raises(InputError, match="teaches class 1 twice"):
        Protocol("mine", "any", base_classes=2, sessions=1, way=1, shot=1, order=(0, 1, 1))
    with pytest.raises(InputError, match=r"orders 2 classes but has 3 \(2 \+ 1 × 1\)"):
        Protocol("mine", "any", base_classes=2, sessions=1, way=1, shot=1, order=(0, 1))


def test_a_session_past_the_last_is_refused():
    with pytest.raises(InputError, match="has sessions 0 … 8; there is no session 9"):
        PROTOCOLS["cifar100"].labels(9)


def test_a_protocol_is_read_from_a_file(tmp_path):
    file = tmp_path / "birds.json"
    file.write_text(json.dumps({"dataset": "cub200", "base_classes": 3, "sessions": 1, "way": 2, "shot": 5}))
    assert read_protocol(file) == Protocol("birds", "cub200", base_classes=3, sessions=1, way=2, shot=5)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"name": "b", "order": [4, 3, 2, 1, 0]}))
    assert read_protocol(file).order == (4, 3, 2, 1, 0)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "'protocol' is a table of values"),
        ('{"datasets": "x"}', "A protocol has no 'datasets' in 'protocol'; did you mean 'dataset'?"),
        ('{"dataset": "x"}', "A protocol needs 'base_classes'"),
        ('{"dataset": "x", "base_classes": 0, "sessions": 1, "way": 1, "shot": 1}', "base_classes = 0"),
    ],
)
def test_a_wrong_file_is_a_sentence(tmp_path, content, sentence):
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
        read_protocol(tmp_path / "p.json")
    with pytest.raises(StorageError, match="There is no file"):
        read_protocol(tmp_path / "q.json")


def test_a_data_set_is_cut_into_sessions(tmp_path):
    images = array_images(np.zeros((8, 3, 2, 2), dtype=np.uint8), torch.arange(8))
    dataset = Dataset("eight", tuple("abcdefgh"), images, images)
    cut = cut_protocol(dataset, tmp_path / "photos", base=3, way=2, shot=1)
    assert (cut.name, cut.base_classes, cut.sessions, cut.way, cut.classes) == ("photos", 3, 2, 2, 7)
    for wrong in ({"base": 0}, {"way": -5}, {"shot": 0}):
        ((option, value),) = wrong.items()
        with pytest.raises(InputError, match=f"--{option} is {value}; it must be a whole number >= 1"):
            cut_protocol(dataset, tmp_path, **{"base": 2, "way": 2, "shot": 1} | wrong)
    with pytest.raises(InputError, match="has 8 classes, which is too few for 7 base classes and a session of 2"):
        cut_protocol(dataset, tmp_path / "photos", base=7, way=2, shot=1)
