import numpy as np
import torch

from masil.methods.exemplars import Exemplars, herd


def herded(z: np.ndarray, most: int) -> list[int]:
    """Algorithm 4 of iCaRL, step by step."""
    chosen: list[int] = []
    for k in range(1, most + 1):
        distances = {
            i: np.linalg.norm(z.mean(0) - (z[i] + z[chosen].sum(0)) / k) for i in range(len(z)) if i not in chosen
        }
        chosen.append(min(distances, key=distances.__getitem__))
    return chosen


def test_herding_follows_the_algorithm() -> None:
    z = torch.randn(15, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert herd(z, 9).tolist() == herded(z.numpy(), 9)
    assert sorted(herd(z, 40).tolist()) == list(range(15))


def test_each_class_keeps_its_own_and_no_more_than_asked_for() -> None:
    labels = torch.tensor([1, 0, 1, 0, 1, 0, 1])
    activations = torch.rand(7, 3, generator=torch.Generator().manual_seed(0))
    kept = Exemplars(3, each=2)
    kept.add(activations, labels, lambda rows: rows)
    assert kept.labels.tolist() == [0, 0, 1, 1]
    for row, label in zip(kept.activations, kept.labels, strict=True):
        assert any(torch.equal(row, own) for own in activations[labels == label])
    together, both = kept.with_shots(torch.ones(1, 3), torch.tensor([2]))
    assert together.shape == (5, 3)
    assert both.tolist() == [0, 0, 1, 1, 2]
