import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.collapse import FRAMES, orthogonal_frame, simplex_etf
from masil.errors import InputError, UnknownNameError, lookup


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@settings(deadline=None)
@given(k=st.integers(2, 40), extra=st.integers(0, 30), seed=st.integers(0, 999))
def test_a_simplex_has_unit_vectors_and_cosines_of_minus_one_over_k_minus_one(k, extra, seed):
    frame = simplex_etf(k, k - 1 + extra, seeded(seed))
    assert frame.shape == (k, k - 1 + extra)
    assert frame.dtype == torch.float32
    expected = torch.full((k, k), -1 / (k - 1)).fill_diagonal_(1)
    torch.testing.assert_close(frame @ frame.T, expected, atol=2e-6, rtol=0)
    torch.testing.assert_close(frame.sum(0), torch.zeros(k - 1 + extra), atol=1e-5, rtol=0)


@settings(deadline=None)
@given(k=st.integers(1, 40), extra=st.integers(0, 30), seed=st.integers(0, 999))
def test_an_orthogonal_frame_has_unit_vectors_at_right_angles(k, extra, seed):
    frame = orthogonal_frame(k, k + extra, seeded(seed))
    torch.testing.assert_close(frame @ frame.T, torch.eye(k), atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", FRAMES)
def test_the_seed_turns_the_frame_and_no_direction_is_preferred(name):
    frame = lookup("frame", name, FRAMES)
    assert torch.equal(frame(5, 8, seeded(1)), frame(5, 8, seeded(1)))
    assert not torch.allclose(frame(5, 8, seeded(1)), frame(5, 8, seeded(2)), atol=0.1)
    frames = torch.stack([FRAMES[name](3, 4, seeded(seed)) for seed in range(2000)])  # [draws k d]
    assert frames.mean(0).abs().max() < 0.05
    torch.testing.assert_close(frames.square().mean(0), torch.full((3, 4), 0.25), atol=0.03, rtol=0)


@pytest.mark.parametrize(
    ("frame", "k", "d", "sentence"),
    [
        (simplex_etf, 120, 64, "A simplex of 120 classes needs at least 119 features but there are 64; choose"),
        (orthogonal_frame, 120, 119, "orthogonal frame of 120 classes needs at least 120 features but there are 119"),
        (simplex_etf, 1, 64, "at least 2 classes, but there is 1"),
        (simplex_etf, 0, 64, "asked for 0 classes"),
        (orthogonal_frame, 0, 64, "asked for 0 classes"),
    ],
)
def test_a_frame_needs_room_and_its_name(frame, k, d, sentence):
    with pytest.raises(InputError, match=sentence):
        frame(k, d, seeded())
    with pytest.raises(UnknownNameError, match="no frame called 'simplx'; did you mean 'simplex'"):
        lookup("frame", "simplx", FRAMES)
