"""Every way to hand over activations leads to the same values; what cannot be any is refused in a sentence."""

import numpy as np
import pytest
import torch

from masil.errors import InputError
from masil.learner.inputs import read_activations


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
