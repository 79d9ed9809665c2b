"""Activations and class names come in many wrappings; what cannot be any is refused in a sentence."""

import numpy as np
import pytest
import torch

from masil.errors import InputError
from masil.learner.inputs import as_array, class_codes, read_activations, read_label, read_labels


def test_activations_in_any_wrapping():
    rows = [[0.0, 1.5], [2.0, 0.0]]
    for form in (rows, np.array(rows), np.array(rows, np.float32), torch.tensor(rows), torch.tensor(rows).double()):
        found = read_activations(form, None)
        assert found.dtype == torch.float32
        assert found.tolist() == rows


@pytest.mark.parametrize(
    ("activations", "sentence"),
    [
        ([[1.0, 2.0], [1.0, -0.5]], "of image 1 go down to -0.5, but concepts need activations >= 0"),
        ([[1.0, 2.0], [1.0, float("nan")]], "of image 1 are infinite or not a number"),
        ([[1.0, 2.0, 3.0]], "have 3 features but the model has learnt from 2; were they computed with the same"),
        ([1.0, 2.0], r"must be activations \[n d\], but has the shape \[2\]"),
        (["owl.png"], r"must be activations \[n d\], but is a list; give Masil a backbone"),
        (object(), r"must be activations \[n d\], but is a object"),
    ],
)
def test_what_are_no_activations(activations, sentence):
    with pytest.raises(InputError, match=sentence):
        read_activations(activations, 2)


@pytest.mark.parametrize("wrap", [list, tuple, np.array, torch.tensor])
def test_whole_numbers_in_any_wrapping(wrap):
    found = read_labels(wrap([3, 1, 3]), 3)
    assert found == [3, 1, 3]
    assert all(type(label) is int for label in found)


@pytest.mark.parametrize("wrap", [list, tuple, np.array, lambda x: np.array(x, dtype=object)])
def test_strings_in_any_wrapping(wrap):
    found = read_labels(wrap(["wren", "owl"]), 2)
    assert found == ["wren", "owl"]
    assert all(type(label) is str for label in found)


@pytest.mark.parametrize("wrong", [2.0, None, True, "", b"owl", ("a", "b"), np.float32(1.5), np.bool_(True)])
def test_other_names_are_refused(wrong):
    with pytest.raises(InputError, match="The label of image 1 is .*strings that are not empty, or by whole numbers"):
        read_labels([0, wrong], 2)


def test_kinds_do_not_mix():
    with pytest.raises(InputError, match="label of image 1 is 'owl' but others are like 3"):
        read_labels([3, "owl"], 2)
    with pytest.raises(InputError, match="label of image 0 is 'owl' but others are like 7"):
        read_labels(["owl"], 1, [7, 8])


def test_shapes_and_lengths():
    with pytest.raises(InputError, match="There are 3 images but 2 labels"):
        read_labels([1, 2], 3)
    with pytest.raises(InputError, match=r"must be \[n\], one for each image, but have the shape \[2, 1\]"):
        read_labels(np.ones((2, 1), int), 2)
    with pytest.raises(InputError, match="must be a sequence"):
        read_labels("owl", 3)
    with pytest.raises(InputError, match="must be a sequence"):
        read_labels(None, 3)


def test_one_name():
    assert read_label(np.int64(4)) == 4
    assert read_label("owl") == "owl"
    with pytest.raises(InputError, match="The class name is 1.5"):
        read_label(1.5)


def test_codes_and_arrays():
    assert class_codes(["b", "a", "b"], ("a", "b")).tolist() == [1, 0, 1]
    assert as_array([2, 1]).dtype == np.int64
    assert as_array(["x", "long name"]).tolist() == ["x", "long name"]
