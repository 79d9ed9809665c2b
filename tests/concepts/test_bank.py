import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from masil.backbones import ActivationStore, ModuleBackbone
from masil.concepts import BankRecord, ConceptBank, checks, nmf
from masil.data import Framing, array_images
from masil.errors import InputError

RECORD = BankRecord(rows=10, seed=0, iterations=3, converged=True, objective=0.5)


def bank(Q: Tensor) -> ConceptBank:
    return ConceptBank(Q, RECORD)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def separable(n: int, d: int, v: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Activations P Q in which every concept has features, and rows, of its own."""
    Q = draw(v, d, seed=seed)
    Q[:, :v] = torch.eye(v)
    Q = Q / Q.norm(dim=1, keepdim=True)
    P = draw(n, v, seed=seed + 1) * (draw(n, v, seed=seed + 2) < 0.5)
    P[:v] = 2 * torch.eye(v)
    return P @ Q, Q


@pytest.mark.usefixtures("one_thread")
def test_fitting_planted_concepts_finds_them_and_the_same_seed_the_same() -> None:
    A, Q = separable(300, 24, 4)
    found = ConceptBank.fit(A, 4, seed=1, tol=1e-7, max_iterations=2000)
    assert found.concepts.shape == (4, 24)
    assert found.record.rows == 300
    assert found.record.seed == 1
    torch.testing.assert_close(found.concepts.norm(dim=1), torch.ones(4))
    assert float((found.concepts @ Q.T).amax(0).min()) > 0.99
    assert found.relative_error(A) < 0.05
    A, _ = separable(100, 12, 3)
    first, second = (ConceptBank.fit(A, 3, seed=5, tol=1e-3) for _ in range(2))
    assert torch.equal(first.concepts, second.concepts)


def test_a_mapped_file_is_fitted_without_holding_the_coefficients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    A, Q = separable(300, 24, 4)
    np.save(tmp_path / "activations.npy", A.numpy())
    module = importlib.import_module("masil.concepts.bank")
    held = []
    monkeypatch.setattr(module, "nmf", lambda *a, **options: held.append(options["coefficients"]) or nmf(*a, **options))
    for entries in (300 * 4, 300 * 4 - 1):
        monkeypatch.setattr(module, "HELD_ENTRIES", entries)
        found = ConceptBank.fit(np.load(tmp_path / "activations.npy", mmap_mode="r"), 4, tol=1e-5, max_iterations=2000)
        assert float((found.concepts @ Q.T).amax(0).min()) > 0.99
    assert held == [True, False]


def test_coefficients_and_reconstructions_of_mixtures_are_exact() -> None:
    A, Q = separable(40, 20, 5)
    b = bank(Q)
    torch.testing.assert_close(b.coefficients(A) @ Q, A, atol=1e-5, rtol=0)
    torch.testing.assert_close(b.reconstruct(A), A, atol=1e-5, rtol=0)
    assert b.relative_error(A) < 1e-5
    assert b.coefficients(A.double()).dtype == torch.float64
    assert (b.v, b.features) == (5, 20)


def test_gradients_flow_through_coefficients_and_reconstructions() -> None:
    A, Q = separable(10, 8, 3)
    A.requires_grad_()
    (gradient,) = torch.autograd.grad(bank(Q).reconstruct(A).sum(), A)
    assert bool(gradient.any())
    assert not ConceptBank.fit(A, 3, tol=1e-2).concepts.requires_grad  # a bank carries no graph


def test_the_relative_error_is_the_frobenius_ratio_over_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    A, b = draw(50, 9, seed=3), bank(draw(4, 9, seed=4))
    expected = float((A - b.reconstruct(A)).norm() / A.norm())
    assert b.relative_error(A) == pytest.approx(expected, rel=1e-5)
    monkeypatch.setattr(checks, "BLOCK_ROWS", 7)
    assert b.relative_error(A) == pytest.approx(expected, rel=1e-5)
    assert b.relative_error(torch.zeros(3, 9)) == 0
    assert b.relative_error(torch.zeros(0, 9)) == 0


@given(st.integers(2, 12), st.integers(2, 20), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_mean_cosines_are_those_of_all_pairs(v: int, d: int, seed: int) -> None:
    b = bank(draw(v, d, seed=seed, dtype=torch.float64))
    for centred in (False, True):
        Q = b.concepts - b.concepts.mean(0) if centred else b.concepts
        pairs = [torch.cosine_similarity(Q[i], Q[j], dim=0) for i in range(v) for j in range(v) if i != j]
        assert b.mean_cosine(centred=centred) == pytest.approx(float(torch.stack(pairs).mean()), abs=1e-9)
    assert bank(torch.eye(64, 512)).mean_cosine() == 0
    assert bank(torch.eye(64, 512)).mean_cosine(centred=True) == pytest.approx(-1 / 63)  # says little


def test_nearest_are_the_largest_coefficients_and_of_equals_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    b = bank(torch.eye(2))
    A = torch.tensor([[1.0, 5.0], [3.0, 0.0], [2.0, 5.0], [3.0, 1.0], [0.0, 6.0], [3.0, 5.0]])
    expected = [[1, 3, 5, 2], [4, 0, 2, 5]]
    for block_rows in (2, 3, 100):
        monkeypatch.setattr(checks, "BLOCK_ROWS", block_rows)
        found = b.nearest(A, 4)
        assert found.rows.tolist() == expected
        torch.testing.assert_close(found.coefficients, torch.tensor([[3.0, 3, 3, 2], [6.0, 5, 5, 5]]))


def test_a_target_is_the_coefficient_of_its_concept() -> None:
    A, Q = separable(10, 8, 3)
    assert torch.equal(bank(Q).target(2)(A), bank(Q).coefficients(A)[:, 2])
    with pytest.raises(InputError, match="Concept 3 was asked for, but the bank has concepts 0 to 2"):
        bank(Q).target(3)


def test_a_bank_is_fitted_again_from_where_it_is_to_all_rows_or_some() -> None:
    A = draw(300, 12)
    bank = ConceptBank.fit(A, 4, tol=1e-6, max_iterations=2000)
    again = bank.refit(A)
    begun = 0.5 * float((A - bank.reconstruct(A)).double().square().sum())
    assert again.record.objective <= begun * (1 + 1e-5)
    assert again.record.iterations < bank.record.iterations
    chosen = torch.randperm(300, generator=torch.Generator().manual_seed(3))[:100].sort().values
    some = bank.refit(A, rows=100, seed=3, tol=1e-3)
    assert some.record.rows == 100
    torch.testing.assert_close(some.concepts, bank.refit(A[chosen], tol=1e-3).concepts)
    torch.testing.assert_close(some.concepts, bank.refit(A.numpy(), rows=100, seed=3, tol=1e-3).concepts)
    assert bank.refit(A, rows=1000).record.rows == 300
    torch.testing.assert_close(
        ConceptBank.fit(A, 4, rows=100, seed=3).concepts, ConceptBank.fit(A[chosen], 4, seed=3).concepts
    )
    A[int((~torch.isin(torch.arange(300), chosen)).nonzero()[0]), 0] = torch.nan  # not drawn, and refused all the same
    with pytest.raises(InputError, match="NaN"):
        ConceptBank.fit(A, 4, rows=100, seed=3)
    A = draw(300, 12)
    with pytest.raises(InputError, match=r"initial concepts have shape \[4, 12\], but \[4, 11\] is needed"):
        bank.refit(A[:, 1:])


class Colours(nn.Module):
    """Pooled red, green and blue, each in two strengths: activations whose concepts are colours."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x.relu(), (x - 0.5).relu()], 1)


def test_a_bank_from_images_finds_their_colours(tmp_path: Path) -> None:
    """16 × 16 images of which each quarter has one of three colours."""
    colours = np.eye(3, dtype=np.uint8)[np.random.default_rng(0).integers(0, 3, (12, 2, 2))] * 255
    images = array_images(np.ascontiguousarray(colours.repeat(8, 1).repeat(8, 2).transpose(0, 3, 1, 2)))
    net = ModuleBackbone(Colours(), Framing(16, 16), name="colours", mean=(0, 0, 0), std=(1, 1, 1))
    options = {"crops": 6, "side": 4, "seed": 3, "engine": "torch", "device": "cpu", "tol": 1e-3}
    found = ConceptBank.from_images(images, net, 3, **options)
    record = found.record
    assert (record.crops, record.side, record.rows, record.backbone) == (6, 4, 72, net.fingerprint())
    # Each concept is one colour: of red, green and blue it has nearly all in one, where a mixture has half or less.
    shares, channels = (found.concepts[:, :3] / found.concepts[:, :3].sum(1, keepdim=True)).max(1)
    assert sorted(channels.tolist()) == [0, 1, 2]
    assert float(shares.min()) > 0.9
    stored = ConceptBank.from_images(images, net, 3, store=ActivationStore(tmp_path), **options)
    torch.testing.assert_close(stored.concepts, found.concepts)
    assert list(tmp_path.glob("*.npy"))


A = draw(4, 6)
BAD = [
    (torch.rand(6), r"Activations must have the shape \[n d\], but have \[6\]"),
    (torch.ones(4, 6, dtype=torch.int32), "activations are int32; convert them to float32 or float64"),
    (
        torch.rand(4, 5),
        "activations have 5 features but the concept bank has 6; were they computed with the same backbone",
    ),
    (A - 1, "activations go down to -.*, but concepts need activations >= 0; were they taken before the ReLU"),
    (A / 0, "activations have NaN or infinite values in 4 of 4 rows"),
    (A.to("meta"), r"activations are on meta but the concept bank on cpu; use bank.to\('meta'\)"),
]


@pytest.mark.parametrize(("activations", "sentence"), BAD)
def test_activations_that_do_not_fit_are_refused_in_a_sentence(activations: Tensor, sentence: str) -> None:
    for what in ("coefficients", "reconstruct", "relative_error", "nearest"):
        options = (1,) if what == "nearest" else ()
        with pytest.raises(InputError, match=sentence):
            getattr(bank(draw(3, 6)), what)(activations, *options)
    if "concept bank" not in sentence:
        with pytest.raises(InputError, match=sentence):
            ConceptBank.fit(activations, 2)


def test_other_bad_input_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"Concepts must be floating-point \[v d\], but are torch.int64 \[2, 2\]"):
        bank(torch.ones(2, 2, dtype=torch.int64))
    with pytest.raises(InputError, match="concepts go down to -1"):
        bank(-torch.ones(2, 2))
    with pytest.raises(InputError, match="mean cosine needs at least two concepts"):
        bank(torch.ones(1, 2)).mean_cosine()
    with pytest.raises(InputError, match="The 5 nearest of 4 activations were asked for"):
        bank(draw(3, 6)).nearest(A, 5)
    for v in (0, 5, 7):
        with pytest.raises(InputError, match=f"{v}"):
            ConceptBank.fit(A, v)
    with pytest.raises(AttributeError):
        bank(draw(3, 6)).concepts = draw(2, 6)
    assert replace(bank(draw(3, 6)), concepts=draw(2, 6)).v == 2
