import math

import pytest
import torch
from torch.nn import functional

from masil.collapse import class_means, cosine_cross_entropy, dot_regression
from masil.errors import InputError, UnknownNameError
from masil.training import (
    CosineLoss,
    FrameLoss,
    LeastSquaresLoss,
    make_loss,
    minimise_by_sgd,
    minimise_convex,
    soft_labels,
    train_map,
)
from masil.training.loss import contrast


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(n=6, d=8, k=3):
    activations = torch.rand(n, d, generator=draw(1))
    labels = torch.arange(n) % k
    return activations, labels, labels.roll(1), torch.rand(n, generator=draw(2))


def test_a_loss_has_the_parameters_that_it_needs_and_survives_json():
    cosine, framed = CosineLoss().build(8, 3, draw()), FrameLoss(embedding=5).build(8, 3, draw())
    learnt = FrameLoss(frame_shape=None, term="cross-entropy", embedding=5).build(8, 3, draw())
    assert set(cosine.state_dict()) == {"vectors"}
    assert all(name.startswith("projection.") for name, _ in framed.named_parameters())
    assert {name.split(".")[0] for name, _ in learnt.named_parameters()} == {"vectors", "projection"}
    assert [loss.class_vectors(3).shape[1] for loss in (cosine, framed, learnt)] == [8, 5, 5]
    for loss in (cosine, framed, learnt):
        assert make_loss(loss.to_json()).to_json() == loss.to_json()
    means = torch.rand(3, 8, generator=draw(4))
    cosine.start_at(means)
    torch.testing.assert_close(cosine.class_vectors(3), functional.normalize(means))


def test_least_squares_are_their_formula_for_mixed_images():
    a, labels, partners, lam = batch()
    loss = LeastSquaresLoss(decay_vectors=0.3, decay_features=0.2).build(8, 3, draw())
    W = loss.class_vectors(3)
    expected = 0.3 / 2 * float(W.square().sum()) + 0.2 / 2 * float(a.square().sum(1).mean())
    for row, label, partner, share in zip(a, labels, partners, lam, strict=True):
        target = share * torch.eye(3)[label] + (1 - share) * torch.eye(3)[partner]
        expected += float((W @ row - target).square().sum()) / (2 * len(a))
    assert float(loss(a, labels, partners, lam).detach()) == pytest.approx(expected, rel=1e-5)
    assert make_loss({"name": "least-squares", "decay_vectors": 0.3}).to_json()["decay_vectors"] == 0.3
    with pytest.raises(InputError, match="`decay_features` is -1"):
        LeastSquaresLoss(decay_features=-1)


def test_each_loss_is_its_formula_for_mixed_images():
    a, labels, partners, lam = batch()
    cosine = CosineLoss(scale=30.0, margin=0.4, smoothing=0.1, contrast=0.25).build(8, 3, draw())
    assert cosine.vectors is not None
    expected = cosine_cross_entropy(
        a, cosine.vectors, labels, 30.0, 0.4, smoothing=0.1, partner_labels=partners, lam=lam
    ) + 0.25 * contrast(a, soft_labels(labels, partners, lam, 3), 0.1)
    torch.testing.assert_close(cosine(a, labels, partners, lam), expected)
    framed = FrameLoss(embedding=5).build(8, 3, draw())
    assert framed.frame is not None
    expected = dot_regression(
        framed.embed(a), framed.frame[labels], 10.0, partner_vectors=framed.frame[partners], lam=lam
    )
    torch.testing.assert_close(framed(a, labels, partners, lam), expected)
    entropy = FrameLoss(term="cross-entropy", scale=16.0, embedding=5).build(8, 3, draw())
    assert entropy.frame is not None
    expected = cosine_cross_entropy(entropy.embed(a), entropy.frame, labels, 16.0, partner_labels=partners, lam=lam)
    torch.testing.assert_close(entropy(a, labels, partners, lam), expected)


def test_a_reserved_frame_has_room_for_classes_to_come():
    frame = FrameLoss(embedding=16, reserve=10).build(8, 3, draw()).class_vectors(10)
    torch.testing.assert_close(frame @ frame.T, (10 * torch.eye(10) - 1) / 9, atol=1e-5, rtol=0)
    with pytest.raises(InputError, match="simplex of 60 classes needs at least 59 features but there are 32"):
        FrameLoss(embedding=32).build(8, 60, draw())
    with pytest.raises(InputError, match="simplex of 100 classes"):
        FrameLoss(embedding=64, reserve=100).build(8, 60, draw())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "cosin"}, "no loss called 'cosin'; did you mean 'cosine'"),
        ({"name": "cosine", "sale": 3}, "The loss 'cosine' has no setting 'sale'; did you mean 'scale'"),
        ({"name": "cosine", "scale": 0}, "`scale` is 0, but must be positive"),
        ({"name": "cosine", "smoothing": -1}, "`smoothing` is -1, but must be at least 0"),
        ({"name": "cosine", "start": "mean"}, "start of the class vectors"),
        ({"name": "frame", "frame_shape": "pentagon"}, "no frame called 'pentagon'"),
        ({"name": "frame", "term": "dot"}, "no term of a frame's loss called 'dot'"),
        ({"name": "frame", "frame_shape": None}, "Dot-regression needs class vectors that are fixed"),
    ],
)
def test_what_is_no_loss_is_said(settings, sentence):
    with pytest.raises((InputError, UnknownNameError), match=sentence):
        make_loss(settings)


def test_a_map_is_drawn_to_the_class_vectors_by_the_same_loss():
    labels = torch.arange(4).repeat(40)
    a = torch.rand(160, 6, generator=draw(1)) + 0.3 * torch.eye(4, 6)[labels]
    loss = CosineLoss()
    g = train_map(a, labels, loss, seed=3)
    assert not g.matrix.requires_grad
    start = CosineLoss().build(6, 4, draw())
    start.start_at(class_means(g.centred(a), labels))
    one = torch.ones(160)
    assert float(loss(g(a), labels, labels, one).detach()) < float(start(g.centred(a), labels, labels, one).detach())


def test_contrast_is_its_formula():
    z = functional.normalize(torch.randn(5, 4, generator=draw(3)))
    labels = torch.tensor([0, 0, 1, 1, 2])  # the last one has no positive
    total = 0.0
    for i in range(4):
        others = [j for j in range(5) if j != i]
        logs = {j: float(z[i] @ z[j]) / 0.5 for j in others}
        norm = math.log(sum(math.exp(value) for value in logs.values()))
        positives = [j for j in others if labels[j] == labels[i]]
        total -= sum(logs[j] - norm for j in positives) / len(positives)
    found = contrast(z, functional.one_hot(labels).float(), 0.5)
    assert float(found) == pytest.approx(total / 4, rel=1e-5)
    # Without any positive gradients are finite.
    z = torch.randn(3, 4, generator=draw(3)).requires_grad_()
    loss = contrast(z, torch.eye(3), 0.1)
    loss.backward()
    assert float(loss.detach()) == 0
    assert z.grad is not None
    assert torch.isfinite(z.grad).all()
    with pytest.raises(InputError, match="only one"):
        contrast(z[:1], torch.eye(3)[:1], 0.1)


def test_soft_labels_are_shares():
    found = soft_labels(torch.tensor([0, 1]), torch.tensor([2, 1]), torch.tensor([0.75, 0.5]), 3)
    assert found.tolist() == [[0.75, 0.0, 0.25], [0.0, 1.0, 0.0]]


def test_a_convex_loss_is_minimised():
    A, b = torch.randn(20, 5, generator=draw()), torch.randn(20, generator=draw(1))
    w = torch.zeros(5)
    minimise_convex(w, lambda: (A @ w - b).square().sum())
    assert torch.allclose(w, torch.linalg.lstsq(A, b[:, None]).solution[:, 0], atol=1e-4)
    assert not w.requires_grad


def test_every_row_is_seen_before_any_comes_again_and_the_rate_falls_along_a_cosine():
    w = torch.zeros(1)
    seen: list[int] = []
    path: list[float] = []

    def loss(rows):
        seen.extend(rows.tolist())
        path.append(float(w.detach()))
        return w.sum()  # a gradient of 1, so steps show the rate

    minimise_by_sgd([w], loss, 7, steps=6, batch=3, rate=1.0, generator=draw())
    assert sorted(seen[:7]) == sorted(seen[7:]) == list(range(7))
    assert seen[:7] != seen[7:]
    expected, velocity, position = [], 0.0, 0.0
    for step in range(6):
        expected.append(position)
        gradient = 1 + 5e-4 * position
        velocity = 0.9 * velocity + gradient
        position -= 0.5 * (1 + math.cos(math.pi * step / 6)) * (gradient + 0.9 * velocity)
    assert torch.allclose(torch.tensor(path), torch.tensor(expected), atol=1e-4)
