import math

import pytest
import torch
from torch.nn import functional

from masil.errors import InputError
from masil.methods import make
from masil.methods.c_fscil import memory_loss, nudged


def cosines_between(vectors: torch.Tensor) -> float:
    unit = functional.normalize(vectors.tanh())
    return float((unit @ unit.T).fill_diagonal_(0).abs().mean())


def test_nudging_lowers_the_cosines_between_vectors_and_keeps_each_near_itself() -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.rand(1, 64, generator=generator) + 0.5 * torch.randn(12, 64, generator=generator)
    given = start.clone()
    moved = nudged(start)
    assert torch.equal(start, given)  # or the anchor would move along
    assert cosines_between(moved) < 0.7 * cosines_between(start)
    assert float(functional.cosine_similarity(moved.tanh(), start.tanh()).min()) > 0.7


def test_the_loss_is_the_binary_cross_entropy_of_shares_of_soft_absolute_cosines() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, written = torch.randn(3, 8, generator=generator), torch.randn(4, 8, generator=generator)
    labels = torch.tensor([2, 0, 3])
    total = 0.0
    for query, label in zip(queries, labels.tolist(), strict=True):
        cosines = [float(functional.cosine_similarity(query.tanh(), row.tanh(), dim=0)) for row in written]
        shares = [1 / (1 + math.exp(-10 * (a - 0.5))) + 1 / (1 + math.exp(-10 * (-a - 0.5))) for a in cosines]
        shares = [share / sum(shares) for share in shares]
        total -= sum(math.log(e if place == label else 1 - e) for place, e in enumerate(shares)) / 12
    assert float(memory_loss(queries, written, labels)) == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_class_vectors_are_the_layers_outputs_for_means_that_never_change(mode: int, task, peaks) -> None:
    method = make("c-fscil", mode=mode, episodes=20)
    method.fit(peaks(range(6), 12), task(6, 4))
    means, weight = method.means.clone(), method.layer.weight.clone()
    method.learn(peaks(range(6, 10), 5))
    assert torch.equal(method.means[:6], means)
    assert torch.equal(method.vectors, method.layer(method.means))
    assert torch.equal(method.layer.weight, weight) == (mode == 1)  # it alone realigns nothing


def test_mode_2_draws_the_vectors_to_their_signs_and_opposite_ones_are_as_good(task, peaks) -> None:
    """The closer tanh p is to a vector of ±1, the larger is its ‖·‖₁/‖·‖₂."""
    flatness, base = {}, peaks(range(6), 12)
    for mode in (1, 2):
        method = make("c-fscil", mode=mode, episodes=20)
        method.fit(base, task(6, 4))
        rows = method.vectors.tanh()
        flatness[mode] = float((rows.abs().sum(1) / rows.norm(dim=1)).mean())
        before = method.predict(base)
        method.vectors = -method.vectors
        assert torch.equal(method.predict(base), before)
    assert flatness[2] > flatness[1]


def test_there_are_three_modes() -> None:
    with pytest.raises(InputError, match="C-FSCIL has the modes 1, 2 and 3; there is no mode 4"):
        make("c-fscil", mode=4)
