import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.collapse import cosine_cross_entropy, dot_regression, simplex_etf
from masil.errors import InputError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(n, d, seed=0):
    return torch.randn(n, d, generator=seeded(seed), dtype=torch.float64)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a, b):
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def plain_cross_entropy(z, W, label, scale, margin, smoothing):
    logits = [scale * (cosine(z, w) - (margin if j == label else 0)) for j, w in enumerate(W)]
    total = sum(math.exp(value) for value in logits)
    losses = [math.log(total) - value for value in logits]
    return (1 - smoothing) * losses[label] + smoothing * sum(losses) / len(losses)


def test_dot_regression_is_its_formula():
    z, targets = rows(6, 5), torch.nn.functional.normalize(rows(6, 5, 1))
    plain = [(dot(a, m) / math.sqrt(dot(a, a)) - 1) ** 2 for a, m in zip(z.tolist(), targets.tolist(), strict=True)]
    assert float(dot_regression(z, targets)) == pytest.approx(10 / 2 * sum(plain) / 6)
    assert float(dot_regression(z, targets, scale=3)) == pytest.approx(3 / 2 * sum(plain) / 6)


def test_dot_regression_is_the_distance_to_the_vertex_squared_twice():
    """Eq. ds on the unit sphere: ‖h − s‖² = 2 (1 − h·s)."""
    z, vertices = rows(6, 5), simplex_etf(6, 5, seeded()).double()
    unit = torch.nn.functional.normalize(z)
    distances = (unit - vertices).square().sum(1)
    assert float(dot_regression(z, vertices, scale=1.0)) == pytest.approx(float((distances / 2).square().mean() / 2))


def test_mixed_dot_regression_weighs_the_two_errors():
    z, own, partner = rows(6, 5), rows(6, 5, 1), rows(6, 5, 2)
    lam = torch.rand(6, generator=seeded(3))
    plain = 0.0
    for i in range(6):
        single = [float(dot_regression(z[i : i + 1], vectors[i : i + 1])) for vectors in (own, partner)]
        plain += float(lam[i]) * single[0] + (1 - float(lam[i])) * single[1]
    assert float(dot_regression(z, own, partner_vectors=partner, lam=lam)) == pytest.approx(plain / 6)


def test_dot_regression_vanishes_on_the_frame_only_and_ignores_length():
    frame = simplex_etf(5, 8, seeded())
    labels = torch.tensor([0, 3, 4])
    assert float(dot_regression(7 * frame[labels], frame[labels])) == pytest.approx(0, abs=1e-10)
    assert float(dot_regression(-frame[labels], frame[labels])) == pytest.approx(20)


@settings(deadline=None)
@given(
    scale=st.floats(1, 30),
    margin=st.sampled_from([0.0, 0.1, 0.4]),
    smoothing=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 99),
)
def test_cosine_cross_entropy_is_its_formula(scale, margin, smoothing, seed):
    z, W = rows(5, 4, seed), rows(7, 4, seed + 100)
    labels = torch.randint(0, 7, (5,), generator=seeded(seed))
    partners = torch.randint(0, 7, (5,), generator=seeded(seed + 1))
    lam = torch.rand(5, generator=seeded(seed + 2))
    own, other = (
        [
            plain_cross_entropy(a, W.tolist(), label, scale, margin, smoothing)
            for a, label in zip(z.tolist(), chosen.tolist(), strict=True)
        ]
        for chosen in (labels, partners)
    )
    plain = cosine_cross_entropy(z, W, labels, scale, margin, smoothing=smoothing)
    assert float(plain) == pytest.approx(sum(own) / 5)
    mixed = cosine_cross_entropy(z, W, labels, scale, margin, smoothing=smoothing, partner_labels=partners, lam=lam)
    expected = sum(share * a + (1 - share) * b for share, a, b in zip(lam.tolist(), own, other, strict=True)) / 5
    assert float(mixed) == pytest.approx(expected)


def test_gradients_agree_with_finite_differences():
    z, W, own, partner = (rows(3, 4, seed).requires_grad_() for seed in range(4))
    labels, partners, lam = torch.tensor([0, 2, 1]), torch.tensor([1, 2, 0]), torch.tensor([0.3, 1.0, 0.8])
    assert torch.autograd.gradcheck(dot_regression, (z, own))
    assert torch.autograd.gradcheck(lambda a, m, p: dot_regression(a, m, partner_vectors=p, lam=lam), (z, own, partner))
    assert torch.autograd.gradcheck(lambda a, w: cosine_cross_entropy(a, w, labels), (z, W))
    assert torch.autograd.gradcheck(
        lambda a, w: cosine_cross_entropy(a, w, labels, 8.0, 0.2, smoothing=0.1, partner_labels=partners, lam=lam),
        (z, W),
    )


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match=r"Embeddings \[3, 4\] and their target vectors \[3, 5\] must both be \[n d\]"):
        dot_regression(rows(3, 4), rows(3, 5))
    with pytest.raises(InputError, match="one target per row"):
        dot_regression(rows(3, 4), rows(3, 4), partner_vectors=rows(2, 4), lam=torch.ones(3))
    with pytest.raises(InputError, match="needs both its partners and λ"):
        dot_regression(rows(3, 4), rows(3, 4), lam=torch.ones(3))
    with pytest.raises(InputError, match=r"Embeddings \[3, 4\] and class vectors \[9, 5\] differ in their features"):
        cosine_cross_entropy(rows(3, 4), rows(9, 5), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(InputError, match="needs both its partners and λ"):
        cosine_cross_entropy(
            rows(3, 4), rows(9, 4), torch.zeros(3, dtype=torch.int64), partner_labels=torch.zeros(3, dtype=torch.int64)
        )
