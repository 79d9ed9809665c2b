import math

import torch
from torch import Tensor

from masil.methods.descent import descend, epochs, settle


def test_settle_finds_the_minimum_of_a_quadratic() -> None:
    generator = torch.Generator().manual_seed(0)
    A, b = torch.randn(20, 5, generator=generator), torch.randn(20, generator=generator)
    w = torch.zeros(5)
    settle(w, lambda: (A @ w - b).square().sum())
    assert torch.allclose(w, torch.linalg.lstsq(A, b[:, None]).solution[:, 0], atol=1e-4)
    assert not w.requires_grad


def test_every_row_is_seen_before_any_comes_again() -> None:
    seen: list[int] = []
    w = torch.zeros(1)

    def loss(rows: Tensor) -> Tensor:
        seen.extend(rows.tolist())
        return w.square().sum()

    steps = epochs(2, 7, 3)
    assert steps == 6
    generator = torch.Generator().manual_seed(0)
    descend([w], loss, 7, steps=steps, batch=3, rate=0.1, generator=generator)
    assert sorted(seen[:7]) == sorted(seen[7:]) == list(range(7))
    assert seen[:7] != seen[7:]


def test_the_rate_falls_along_a_cosine() -> None:
    w = torch.zeros(1)
    path: list[float] = []

    def loss(rows: Tensor) -> Tensor:
        path.append(float(w.detach()))
        return w.sum() * len(rows)  # a gradient of 1, so steps show the rate

    descend([w], loss, 1, steps=4, batch=1, rate=1.0, generator=torch.Generator(), decay=0.0)
    expected, velocity, position = [], 0.0, 0.0
    for step in range(4):
        expected.append(position)
        velocity = 0.9 * velocity + 1
        position -= 0.5 * (1 + math.cos(math.pi * step / 4)) * (1 + 0.9 * velocity)
    assert torch.allclose(torch.tensor(path), torch.tensor(expected), atol=1e-6)
