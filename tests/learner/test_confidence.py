"""The temperature is found again where it is known, and one right answer is no certainty."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from masil.learner.confidence import DEFAULT, hold_out, temperature


@pytest.mark.parametrize("scale", [4.0, 12.0, 40.0])
def test_a_known_temperature_is_found(scale):
    generator = torch.Generator().manual_seed(0)
    cosines = torch.rand(6000, 8, generator=generator)
    labels = torch.multinomial(torch.softmax(scale * cosines, 1), 1, generator=generator)[:, 0]
    assert temperature(cosines, labels) == pytest.approx(scale, rel=0.06)


def test_few_right_answers_give_less_certainty_than_many():
    few, many = (temperature(torch.eye(3).repeat(n, 1), torch.arange(3).repeat(n)) for n in (1, 100))
    assert few < many < 100


def test_without_images_to_spare_there_is_a_default():
    assert temperature(torch.empty(0, 4), torch.empty(0, dtype=torch.int64)) == DEFAULT


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60))
def test_every_class_keeps_images(labels):
    labels = torch.tensor(labels)
    held = hold_out(labels, 0)
    for label in labels.unique():
        n, away = int((labels == label).sum()), int(held[labels == label].sum())
        assert away == (0 if n < 3 else max(1, n // 5))
    assert torch.equal(held, hold_out(labels, 0))
