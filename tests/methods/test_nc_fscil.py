"""A projection that is trained onto class vectors, and fine-tuned session by session."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import dot_regression
from masil.methods import LearnableCe, NcCe, NcFscil, Queries, Samples
from masil.methods.nc_fscil import FineTuned, _rate
from masil.protocol import PROTOCOLS


def clusters(classes: range, each: int, seed: int) -> Samples:
    draw = torch.Generator().manual_seed(seed)
    centres = torch.rand(20, 24, generator=torch.Generator().manual_seed(0)).pow(4)
    labels = torch.tensor(classes).repeat_interleave(each)
    return Samples((centres[labels] + 0.05 * torch.randn(len(labels), 24, generator=draw)).relu(), labels=labels)


@pytest.fixture
def taught(task):
    def teach(kind: type[FineTuned], **options: float) -> FineTuned:
        method = kind(steps=60, lr=0.05, session_steps=60, **options)  # type: ignore[arg-type]
        method.fit(clusters(range(8), 20, 1), task(8, 4))
        return method

    return teach


@pytest.mark.parametrize("kind", [NcFscil, NcCe, LearnableCe])
def test_the_base_session_draws_embeddings_to_their_vectors(kind: type[FineTuned], taught) -> None:
    method = taught(kind)
    tests = clusters(range(8), 30, 2)
    labels = tests.labels
    z, vectors = method.geometry(tests)
    cosines = z @ vectors.T
    own = cosines.gather(1, labels[:, None])[:, 0]
    others = (cosines.sum(1) - own) / 7
    torch.testing.assert_close(z.norm(dim=1), torch.ones(len(z)))
    assert float(own.mean()) > (0.75 if kind is NcFscil else 0.45)  # .82, and .54 or more, to .01 on other draws
    assert float(others.abs().max()) < 0.25
    assert float((method.predict(tests) == labels).float().mean()) > 0.95


@pytest.mark.parametrize("kind", [NcFscil, NcCe])
def test_a_frame_stays_where_it_is_and_has_room_for_all_classes(kind: type[FineTuned], taught) -> None:
    method = taught(kind)
    before = method.vectors.clone()
    off = before @ before.T - torch.eye(12)
    torch.testing.assert_close(off, torch.full((12, 12), -1 / 11).fill_diagonal_(0), atol=1e-5, rtol=0)
    method.learn(clusters(range(8, 12), 5, 3))
    assert torch.equal(method.vectors, before)


def test_learnt_vectors_move_and_new_ones_start_at_their_means(taught) -> None:
    method = taught(LearnableCe, session_lr=0.0)
    shots = clusters(range(8, 10), 5, 3)
    means = torch.stack([shots.activations[shots.labels == c].mean(0) for c in (8, 9)])
    method.learn(shots)
    z, vectors = method.geometry(Queries(means))
    torch.testing.assert_close(vectors[8:], z)
    moving = taught(LearnableCe, session_lr=0.05)
    before = moving.vectors.clone()
    moving.learn(shots)
    assert not torch.allclose(moving.vectors[:8], before)


def test_fine_tuning_teaches_what_the_frame_alone_cannot_know(taught) -> None:
    still, moved = taught(NcFscil, session_lr=0.0), taught(NcFscil)
    tested = clusters(range(12), 30, 5)
    labels = tested.labels
    for method in (still, moved):
        method.learn(clusters(range(8, 12), 5, 3))
    novel = labels >= 8
    right = [(method.predict(tested) == labels)[novel].float().mean() for method in (still, moved)]
    assert float(right[1]) > 0.9 > 0.5 > float(right[0])


def test_the_scale_of_activations_does_not_matter(task, taught) -> None:
    base = clusters(range(8), 20, 1)
    scaled = NcFscil(steps=60, lr=0.05)
    scaled.fit(Samples(64 * base.activations, labels=base.labels), task(8, 4))
    torch.testing.assert_close(
        scaled.geometry(Queries(64 * base.activations))[0], taught(NcFscil).geometry(base)[0], atol=1e-4, rtol=1e-4
    )


def test_the_rate_rises_then_falls_to_a_hundredth() -> None:
    assert [_rate(done, 0.1) for done in (0.0, 0.05, 0.1)] == pytest.approx([0, 0.5, 1])
    assert _rate(1.0, 0.1) == pytest.approx(0.01)
    assert _rate(0.5, 0.0) == pytest.approx(0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi / 2)))


@pytest.mark.parametrize(("repeat", "expected"), [(True, [0, 2, 6]), (False, [0, 1, 2])])
def test_earlier_novel_means_are_replayed_as_often_as_there_have_been_sessions_which_have_steps_of_their_own(
    repeat: bool, expected: list[int], monkeypatch: pytest.MonkeyPatch, task
) -> None:
    method = NcFscil(steps=5, session_steps=(3, 4), repeat=repeat)
    method.fit(clusters(range(8), 20, 1), task(8, 4))
    replayed, taken = [], []

    def train(rows: Tensor, labels: Tensor, steps: int, lr: float) -> None:
        replayed.append(int((labels >= 8).sum()) - 5)
        taken.append(steps)

    monkeypatch.setattr(method, "_train", train)
    for label in (8, 9, 10):
        method.learn(clusters(range(label, label + 1), 5, label))
    assert replayed == expected
    assert taken == [3, 4, 4]


@pytest.mark.parametrize("kind", [NcFscil, NcCe, LearnableCe])
@pytest.mark.parametrize(
    ("dataset", "steps", "repeat", "mixed", "even"),
    [
        ("cifar100", (50, 75, 100, 120, 140, 160, 200, 200), False, 0.75, True),
        ("miniimagenet", (100, 110, 120, 130, 140, 150, 160, 170), True, 0.0, False),
        ("cub200", (105, 110, 115, 120, 125, 130, 135, 140, 145, 150), True, 0.0, False),
    ],
)
def test_the_sessions_of_each_data_set_have_the_authors_steps_copies_mixing_and_balance(
    kind: type[FineTuned], dataset: str, steps: tuple[int, ...], repeat: bool, mixed: float, even: bool
) -> None:
    method = kind(**kind.published[dataset])
    assert (method.session_steps, method.repeat, method.mixed, method.even) == (steps, repeat, mixed, even)
    assert len(steps) == PROTOCOLS[dataset].sessions


def test_a_session_weighs_classes_alike_and_mixes_embeddings_where_it_is_asked_to() -> None:
    method = NcFscil(even=True)
    method.generator = torch.Generator().manual_seed(0)
    z = torch.randn(6, 4, generator=method.generator)
    vectors = torch.eye(3, 4)
    labels = torch.tensor([0, 0, 0, 0, 1, 2])
    errors = ((functional.normalize(z) * vectors[labels]).sum(1) - 1).square()
    per_class = torch.stack([errors[labels == label].mean() for label in range(3)])
    torch.testing.assert_close(method._session_loss(z, vectors, labels), 5 * per_class.mean())
    plain = NcFscil()
    plain.generator = method.generator
    torch.testing.assert_close(plain._session_loss(z, vectors, labels), dot_regression(z, vectors[labels]))
    mixing = NcFscil(mixed=1.0)
    mixing.generator = torch.Generator().manual_seed(1)
    torch.rand((), generator=(same := torch.Generator().manual_seed(1)))
    order = torch.randperm(6, generator=same)
    both = (z + z[order]) / 2
    expected = (dot_regression(both, vectors[labels]) + dot_regression(both, vectors[labels[order]])) / 2
    torch.testing.assert_close(mixing._session_loss(z, vectors, labels), expected)
