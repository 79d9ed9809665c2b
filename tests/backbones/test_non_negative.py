"""Three ways to activations >= 0."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.backbones.non_negative import NON_NEGATIVE, relu, split


@settings(deadline=None)
@given(seed=st.integers(0, 1000), ndim=st.sampled_from([2, 4]))
def test_split_loses_nothing(seed: int, ndim: int) -> None:
    a = torch.randn(*(3, 5, 2, 2)[:ndim], generator=torch.Generator().manual_seed(seed))
    both = split(a)
    assert both.shape[1] == 10
    assert float(both.min()) >= 0
    assert torch.equal(both[:, :5] - both[:, 5:], a)
    assert torch.equal(relu(a), both[:, :5])


def test_keep_changes_nothing() -> None:
    a = torch.rand(2, 3)
    assert NON_NEGATIVE["keep"](a) is a
