"""What the base session learns: banks that have not seen a class, and a temperature that is honest."""

import pytest
import torch

from masil.learner import base
from masil.learner.base import calibrate, fit_bank, powered, reconstruct_held_out


def test_every_class_is_reconstructed_by_a_bank_without_it(monkeypatch):
    labels = torch.arange(7).repeat_interleave(4)
    x = torch.rand(28, 9, generator=torch.Generator().manual_seed(0))
    rows, row_labels = x.repeat_interleave(2, 0), labels.repeat_interleave(2)
    seen = []

    class Bank:
        def __init__(self, given):
            own = [int(row_labels[(rows == row).all(1)][0]) for row in given]
            seen.append(set(own))

        def reconstruct(self, given):
            own = {int(labels[(x == row).all(1)][0]) for row in given}
            assert own
            assert not own & seen[-1]
            assert own | seen[-1] == set(range(7))
            return 2 * given

    monkeypatch.setattr(base, "fit_bank", lambda given, *_, **__: Bank(given))
    assert torch.equal(reconstruct_held_out(x, labels, rows, row_labels, 3, seed=0), 2 * x)
    assert len(seen) == 3


def test_two_classes_are_enough_to_hold_one_out():
    labels = torch.arange(2).repeat_interleave(4)
    x = torch.rand(8, 9, generator=torch.Generator().manual_seed(0))
    assert reconstruct_held_out(x, labels, x, labels, 2, seed=0).shape == x.shape


@pytest.mark.parametrize("power", [0.5, 0.25, 1.0])
def test_the_power_and_its_gradient(power):
    a = torch.tensor([0.0, 0.25, 4.0], requires_grad=True)
    raised = powered(a, power)
    torch.testing.assert_close(raised, torch.tensor([0.0, 0.25, 4.0]) ** power)
    (gradient,) = torch.autograd.grad(raised.sum(), a)
    assert bool(gradient.isfinite().all())


def test_a_bank_has_at_most_as_many_concepts_as_rows_and_features():
    rows = torch.rand(5, 9)
    assert fit_bank(rows, 64, 0, max_iterations=1000).v == 5
    assert fit_bank(rows, 3, 0, max_iterations=1000).v == 3


def test_the_temperature_is_that_of_images_whitening_has_not_seen():
    """Whitening with few images fits their noise: judged on them, everything would look certain."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(30).repeat_interleave(5)
    x = 1.5 + 0.3 * torch.rand(30, 80, generator=generator)[labels] + 0.3 * torch.randn(150, 80, generator=generator)
    honest = calibrate(x, labels, "whitening", 0.01, None, 1.0, 0)
    fooled = calibrate(x, labels, base.make_embedding("whitening", x, labels, 0.01), 0.01, None, 1.0, 0)
    assert honest.temperature < 0.8 * fooled.temperature
    assert bool((honest.expected < fooled.expected).all())
