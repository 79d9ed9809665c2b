"""Is it any class that was taught: the evidence, the fit, and what the learner says."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from masil.collapse import Whitening
from masil.errors import InputError
from masil.learner import Masil, Shots, auroc
from masil.learner.rows import unit
from masil.learner.unknown import REJECTION_RATE, _logistic, evidence, fit_detector, tightness
from masil.protocol import hold_out


def whiten(x, labels):
    return Whitening.fit(x, labels, shrinkage=1.0)


def test_evidence_is_what_it_says():
    cosines = torch.tensor([[0.1, 0.9, 0.5, 0.3, 0.2, 0.0, -0.4, 0.4], [0.0, 0.0, 0.0, 0.7, 0.0, 0.0, 0.0, 0.0]])
    tight = torch.arange(8) / 10
    found = evidence(cosines, torch.tensor([1.0, 2.0]), tight)
    expected = [[0.9, (0.5 + 0.4 + 0.3 + 0.2 + 0.1) / 5, 0.1, 0.0], [0.7, 0.0, 0.3, np.log(2)]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32))


def test_evidence_of_a_single_class_and_of_a_zero_embedding():
    found = evidence(torch.tensor([[0.4]]), torch.tensor([0.0]), torch.tensor([0.5]))
    assert found[0, :3].tolist() == pytest.approx([0.4, 0.0, 0.5])
    assert bool(found.isfinite().all())


def test_tightness_finds_the_length_of_the_true_mean():
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([0.0, 0.5, 1.0, 3.0])
    centre = torch.randn(64, generator=generator)
    centre /= centre.norm()
    sample = lambda scale, n: unit(scale * 4 * centre + torch.randn(n, 64, generator=generator))  # noqa: E731
    lengths = torch.stack([sample(scale, 20_000).mean(0).norm() for scale in truth])
    means = torch.stack([torch.stack([sample(scale, 5).mean(0) for scale in truth]) for _ in range(400)])
    found = torch.stack([tightness(each, torch.full((4,), 5)).square() for each in means]).mean(0)
    plain = means.square().sum(2).mean(0)
    assert float((found[1:] - lengths[1:].square()).abs().max()) < 0.13
    assert float((plain[1:3] - lengths[1:3].square()).min()) > 0.1  # the naive length is too long


def test_a_class_of_one_image_has_the_average_tightness():
    generator = torch.Generator().manual_seed(1)
    means = torch.stack([unit(torch.randn(6, 8, generator=generator)).mean(0), unit(torch.ones(1, 8))[0]])
    found = tightness(means, torch.tensor([6, 1]))
    q = (6 * means[0].square().sum() - 1) / 5
    assert float(found[1]) == pytest.approx(float(q.clamp(0, 1).sqrt()), abs=1e-5)
    assert tightness(means[1:], torch.tensor([1])).tolist() == [0.0]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_auroc_is_that_of_scikit_learn(high, low):
    expected = roc_auc_score([1] * len(high) + [0] * len(low), high + low)
    assert auroc(torch.tensor(high), torch.tensor(low)) == pytest.approx(expected)


def test_the_logistic_regression_is_that_of_scikit_learn():
    generator = torch.Generator().manual_seed(2)
    taught = torch.randn(300, 4, generator=generator) * torch.tensor([1.0, 5.0, 0.1, 2.0]) + 1
    never = torch.randn(70, 4, generator=generator) * torch.tensor([1.0, 5.0, 0.1, 2.0])
    found = _logistic(taught, never)
    rows, y = torch.cat([taught, never]).double().numpy(), np.repeat([1, 0], [300, 70])
    scaler = StandardScaler().fit(rows)
    weight = np.repeat([70 / 300, 1.0], [300, 70])
    reference = LogisticRegression(tol=1e-10, max_iter=1000).fit(scaler.transform(rows), y, sample_weight=weight)
    expected = reference.predict_proba(scaler.transform(rows))[:, 1]
    known = found.known(torch.cat([taught, never])).numpy()
    np.testing.assert_allclose(known, expected, atol=2e-3)  # scikit-learn divides by n instead of n − 1
    assert found.auroc == pytest.approx(roc_auc_score(y, known))
    assert (known[300:] < found.threshold).mean() == pytest.approx(REJECTION_RATE, abs=0.02)


def test_classes_that_play_never_taught_are_in_nothing(world):
    """What g is made of never holds an image of a class that then plays never taught, nor one that is held out."""
    x, names = world.draw(range(9), 10)
    labels = torch.tensor([int(name[1:]) for name in names])
    held = hold_out(labels, 0)
    rows_of = []

    def make(inside):
        rows_of.append(inside)
        return whiten(x[inside], labels[inside].unique(return_inverse=True)[1])

    shots = Shots(x, labels, tuple(names[::10]))
    assert fit_detector(shots, held, make, class_vectors=None, seed=0).images == 90
    assert len(rows_of) == 3
    for inside in rows_of:
        assert not bool((inside & held).any())
        assert len(labels[inside].unique()) == 6


def test_a_session_of_too_little_teaches_nothing_about_the_unknown(world):
    x, names = world.draw(range(2), 6)
    assert Masil(backbone=None, concepts=3).fit(x, names).base_.unknown_detector is None
    x, names = world.draw(range(4), 2)
    model = Masil(backbone=None, concepts=3).fit(x, names)
    assert model.base_.unknown_detector is None
    with pytest.raises(InputError, match="This model cannot tell what it was never taught: its base session was too"):
        model.known(x)
    assert model.answer(x).known is None
    assert model.predict(x).tolist() == names


def test_what_was_never_taught_is_called_unknown_far_more_often_than_what_was(world):
    areas, shares = [], []
    for seed in range(4):
        drawn = replace(world, seed=seed)
        model = Masil(backbone=None, concepts=8).fit(*drawn.draw(range(10), 12))
        taught, never = (drawn.draw(classes, 20, seed=5)[0] for classes in (range(10), range(10, 20)))
        areas.append(auroc(*(torch.from_numpy(model.known(rows)) for rows in (taught, never))))
        shares.append([(model.predict(rows, unknown="never seen") == "never seen").mean() for rows in (taught, never)])
    # .92 on average, with .01 of what was taught called unknown and .41 of what was not.
    assert np.mean(areas) > 0.8
    assert np.mean(shares, 0)[0] < 0.1
    assert np.mean(shares, 0)[1] > 0.25


def test_what_is_called_unknown_has_no_other_name_and_what_is_then_taught_is_known(model, world):
    never, _ = world.draw(range(10, 20), 20, seed=5)
    unknown = model.known(never)
    said = model.predict(never, unknown="never seen")
    named = said != "never seen"
    np.testing.assert_array_equal(said[named], model.predict(never)[named])
    model.learn(*world.draw(range(10, 15), 5, seed=6))
    after = model.known(never)
    assert after[:100].mean() > unknown[:100].mean() + 0.2  # once taught, it is known: .85 after .19


def test_what_stands_for_unknown_is_no_class_and_of_their_kind(model, world):
    x, _ = world.draw(range(2), 1)
    with pytest.raises(InputError, match="What stands for 'never taught' is 'c03', but that is a class"):
        model.predict(x, unknown="c03")
    with pytest.raises(InputError, match="classes are named either by strings or by whole numbers"):
        model.predict(x, unknown=-1)
    numbers = Masil(backbone=None, concepts=8).fit(world.draw(range(6), 8)[0], np.arange(6).repeat(8))
    assert set(numbers.predict(world.draw(range(6, 20), 4)[0], unknown=-1).tolist()) <= {-1, *range(6)}


def test_it_is_saved_and_models_without_it_still_load(fitted, world, tmp_path, monkeypatch):
    x, _ = world.draw(range(8, 14), 4)
    fitted.save(tmp_path / "m")
    again = Masil.load(tmp_path / "m")
    np.testing.assert_array_equal(again.known(x), fitted.known(x))
    assert again.base_.unknown_detector == fitted.base_.unknown_detector
    dumps = json.dumps

    def before(content, **options):
        del content["base"]["rejector"]
        return dumps(content, **options)

    with monkeypatch.context() as patch:
        patch.setattr("masil.storage.tensors.json.dumps", before)
        fitted.save(tmp_path / "old")
    old = Masil.load(tmp_path / "old")
    assert old.base_.unknown_detector is None
    np.testing.assert_array_equal(old.predict(x), fitted.predict(x))
