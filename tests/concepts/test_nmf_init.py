from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from masil.concepts.nmf_blocks import Blocks, TensorBlocks
from masil.concepts.nmf_descent import RULES, Descent, descend
from masil.concepts.nmf_init import begin, nndsvd, random_concepts, sample_size


def boutsidis(A: np.ndarray, v: int) -> np.ndarray:
    """Give the concepts of the non-negative double SVD with unit rows, term by term from a whole SVD."""
    U, _, W = np.linalg.svd(A, full_matrices=False)
    concepts = []
    for u, w in zip(U.T[:v], W[:v], strict=True):
        parts = [(np.maximum(sign * u, 0), np.maximum(sign * w, 0)) for sign in (1, -1)]
        concepts.append(max(parts, key=lambda part: np.linalg.norm(part[0]) * np.linalg.norm(part[1]))[1])
    return np.stack([concept / np.linalg.norm(concept) for concept in concepts])


def test_nndsvd_is_that_of_a_whole_svd_with_unit_concepts() -> None:
    draw = partial(torch.rand, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    A = (draw(80, 20) * torch.logspace(3, -3, 20)) @ draw(20, 20)  # the spectrum falls fast: no doubt about the vectors
    found = nndsvd(A, 6, torch.Generator().manual_seed(1))
    torch.testing.assert_close(found, torch.from_numpy(boutsidis(A.numpy(), 6)), atol=1e-6, rtol=0)


@pytest.mark.parametrize("v", [1, 4, 8])
def test_concepts_have_unit_length_whatever_the_rows(v: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for rows in (torch.zeros(10, 8), torch.ones(10, 8), torch.eye(10, 8), torch.rand(10, 8, generator=generator)):
        for start in (nndsvd, random_concepts):
            found = start(rows, v, generator)
            assert found.shape == (v, 8)
            assert bool((found >= 0).all())
            torch.testing.assert_close(found.norm(dim=1), torch.ones(v, dtype=torch.float64))


def test_samples_of_samples_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def watch(source: Blocks, *arguments: Any, **options: Any) -> Descent:
        sizes.append(len(source))
        return descend(source, *arguments, **options)

    monkeypatch.setattr("masil.concepts.nmf_init.descend", watch)
    rows = torch.rand(40_000, 6, generator=torch.Generator().manual_seed(0))
    concepts, factors, energy = begin(TensorBlocks(rows), 3, "nndsvd", 0, RULES["hals"], keep=True)
    assert sizes == [625, 2500, 10_000]
    assert concepts.shape == (3, 6)
    assert not factors.states
    assert energy == pytest.approx(float(rows.double().square().sum()), rel=1e-6)


def test_a_sample_is_a_quarter_of_many_rows_and_never_too_small_or_too_large() -> None:
    assert sample_size(1000, 4) == 1000
    assert sample_size(2048, 4) == 512
    assert sample_size(2048, 100) == 2048  # fewer than eight rows for each concept
    assert sample_size(30_000, 64) == 7500
    assert sample_size(3_000_000, 64) == 1 << 16
