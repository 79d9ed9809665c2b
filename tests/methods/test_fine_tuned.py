"""A projection that is trained onto class vectors, and fine-tuned session by session."""

import math

import pytest
import torch
from torch import Tensor

from masil.errors import InputError
from masil.methods.ablation import LearnableCe, MasilPaper, NcCe, NcEtfCf
from masil.methods.descent import batches
from masil.methods.fine_tuned import FineTuned, _rate
from masil.methods.nc_fscil import NcFscil


def clusters(classes: range, each: int, seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    centres = torch.rand(20, 24, generator=torch.Generator().manual_seed(0)).pow(4)
    labels = torch.tensor(classes).repeat_interleave(each)
    return (centres[labels] + 0.05 * torch.randn(len(labels), 24, generator=draw)).relu(), labels


def taught(kind: type[FineTuned], **options: float) -> FineTuned:
    method = kind(total=12, steps=60, lr=0.05, session_steps=60, **options)  # type: ignore[arg-type]
    method.fit(*clusters(range(8), 20, 1))
    return method


@pytest.mark.parametrize("kind", [NcFscil, NcCe, LearnableCe])
def test_the_base_session_draws_embeddings_to_their_vectors(kind: type[FineTuned]) -> None:
    method = taught(kind)
    activations, labels = clusters(range(8), 30, 2)
    z, vectors = method.geometry(activations)
    cosines = z @ vectors.T
    own = cosines.gather(1, labels[:, None])[:, 0]
    others = (cosines.sum(1) - own) / 7
    torch.testing.assert_close(z.norm(dim=1), torch.ones(len(z)))
    assert float(own.mean()) > (0.75 if kind is NcFscil else 0.45)  # .82, and .54 or more, to .01 on other draws
    assert float(others.abs().max()) < 0.25
    assert float((method.predict(activations) == labels).float().mean()) > 0.95


@pytest.mark.parametrize("kind", [NcFscil, NcCe])
def test_a_frame_stays_where_it_is_and_has_room_for_all_classes(kind: type[FineTuned]) -> None:
    method = taught(kind)
    before = method.vectors_.clone()
    off = before @ before.T - torch.eye(12)
    torch.testing.assert_close(off, torch.full((12, 12), -1 / 11).fill_diagonal_(0), atol=1e-5, rtol=0)
    method.learn(*clusters(range(8, 12), 5, 3))
    assert torch.equal(method.vectors_, before)
    with pytest.raises(InputError, match="There is room for 12 classes in all, but there are 13 now"):
        method.learn(*clusters(range(12, 13), 5, 4))


def test_learnt_vectors_move_and_new_ones_start_at_their_means() -> None:
    method = taught(LearnableCe, session_lr=0.0)
    shots, labels = clusters(range(8, 10), 5, 3)
    means = torch.stack([shots[labels == c].mean(0) for c in (8, 9)])
    method.learn(shots, labels)
    z, vectors = method.geometry(means)
    torch.testing.assert_close(vectors[8:], z)
    moving = taught(LearnableCe, session_lr=0.05)
    before = moving.vectors_.clone()
    moving.learn(shots, labels)
    assert not torch.allclose(moving.vectors_[:8], before)


def test_fine_tuning_teaches_what_the_frame_alone_cannot_know() -> None:
    still, moved = taught(NcFscil, session_lr=0.0), taught(NcFscil)
    tested, labels = clusters(range(12), 30, 5)
    for method in (still, moved):
        method.learn(*clusters(range(8, 12), 5, 3))
    novel = labels >= 8
    right = [(method.predict(tested) == labels)[novel].float().mean() for method in (still, moved)]
    assert float(right[1]) > 0.9 > 0.5 > float(right[0])


def test_the_scale_of_activations_does_not_matter_and_g_is_given_for_plain_ones() -> None:
    method = taught(NcFscil)
    activations, labels = clusters(range(8), 20, 1)
    g, vectors = method.trained()
    torch.testing.assert_close(g(activations), method.geometry(activations)[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(vectors, method.vectors_[:8])
    scaled = NcFscil(total=12, steps=60, lr=0.05)
    scaled.fit(64 * activations, labels)
    torch.testing.assert_close(scaled.geometry(64 * activations)[0], method.geometry(activations)[0])


@pytest.mark.usefixtures("one_thread")
def test_concepts_alone_and_concepts_as_a_prior_differ_only_in_novel_vectors() -> None:
    alone, prior = NcEtfCf(steps=60, lr=0.05), MasilPaper(steps=60, lr=0.05)
    base, shots = clusters(range(8), 20, 1), clusters(range(8, 10), 5, 3)
    for method in (alone, prior):
        method.fit(*base)
        method.learn(*shots)
    (z, one), (_, other) = alone.geometry(shots[0]), prior.geometry(shots[0])
    assert torch.equal(one[:8], other[:8])
    torch.testing.assert_close(one[:8] @ one[:8].T, torch.full((8, 8), -1 / 7).fill_diagonal_(1), atol=1e-5, rtol=0)
    means = torch.stack([z[shots[1] == c].mean(0) for c in (8, 9)])
    nearer = (torch.nn.functional.normalize(means) * other[8:]).sum(1) - (
        torch.nn.functional.normalize(means) * one[8:]
    ).sum(1)
    assert bool((nearer > 0).all())


def test_the_rate_rises_then_falls_to_a_hundredth() -> None:
    assert [_rate(done, 0.1) for done in (0.0, 0.05, 0.1)] == pytest.approx([0, 0.5, 1])
    assert _rate(1.0, 0.1) == pytest.approx(0.01)
    assert _rate(0.5, 0.0) == pytest.approx(0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi / 2)))


def test_batches_take_every_row_once_before_any_comes_again() -> None:
    found = list(batches(10, 4, 7, torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in found] == [4, 4, 2, 4, 4, 2, 4]
    assert sorted(torch.cat(found[:3]).tolist()) == sorted(torch.cat(found[3:6]).tolist()) == list(range(10))


@pytest.mark.parametrize("kind", [NcFscil, LearnableCe, NcEtfCf])
def test_what_cannot_be_taught_is_said(kind: type[NcFscil]) -> None:
    method = kind(steps=1)
    with pytest.raises(InputError, match="Nothing has been taught yet"):
        method.learn(*clusters(range(2), 3, 0))
    with pytest.raises(InputError, match="Nothing has been taught yet"):
        method.predict(clusters(range(2), 3, 0)[0])


def test_a_frame_smaller_than_the_base_session_is_refused() -> None:
    with pytest.raises(InputError, match="There is room for 4 classes in all, but there are 8 now"):
        NcFscil(total=4).fit(*clusters(range(8), 3, 0))


def test_earlier_novel_means_are_replayed_as_often_as_there_have_been_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    for repeat, expected in ((True, [0, 2, 6]), (False, [0, 1, 2])):
        method = NcFscil(total=12, steps=5, session_steps=5, repeat=repeat)
        method.fit(*clusters(range(8), 20, 1))
        replayed = []
        plain = method._train

        def train(rows: Tensor, labels: Tensor, *rest: object, plain=plain, replayed=replayed, **more: object) -> None:
            replayed.append(int((labels >= 8).sum()) - 5)
            plain(rows, labels, *rest, **more)

        monkeypatch.setattr(method, "_train", train)
        for label in (8, 9, 10):
            method.learn(*clusters(range(label, label + 1), 5, label))
        assert replayed == expected
