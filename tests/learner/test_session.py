"""What a session does to class vectors, and what it leaves alone."""

import math
from contextlib import nullcontext

import pytest
import torch
from torch.nn import functional

from masil.collapse import Projection, class_means, simplex_etf
from masil.errors import InputError, NoEffectWarning, UnknownNameError


def vectors_of(model, *labels):
    return torch.stack([model.memory_.vectors[model.memory_.labels.index(label)] for label in labels])


def session(world, classes=range(10, 13), n=5, seed=1):
    return world.draw(classes, n, seed)


def test_without_a_prior_a_class_is_the_mean_of_its_embeddings(model, world):
    shots, labels = session(world)
    means = class_means(model.base_.embed(shots), torch.arange(3).repeat_interleave(5))
    for params in ({"alpha": 0}, {"calibration": None}):
        model.set_params(alpha="auto", calibration="concepts").set_params(**params)
        model.learn(shots, labels)
        torch.testing.assert_close(model.memory_.vectors[10:], functional.normalize(means))
        model.undo()


def test_an_infinite_prior_is_the_induced_vector_alone(model, world):
    shots, labels = session(world)
    x = model.base_.door(shots)
    reconstructed = model.base_.embedding(model.base_.bank.reconstruct(x))  # Eq. inf, hi, weights through g
    induced = functional.normalize(class_means(reconstructed, torch.arange(3).repeat_interleave(5)))
    for reading, said in (("posterior", nullcontext()), ("literal", pytest.warns(NoEffectWarning, match="alpha=inf"))):
        with said:
            model.set_params(alpha=math.inf, reading=reading).learn(shots, labels)
        torch.testing.assert_close(model.memory_.vectors[10:], induced)
        model.undo()


def test_a_number_for_alpha_gives_the_share_alpha_over_one_plus_alpha(model, world):
    shots, labels = session(world)
    model.set_params(alpha=0.5).learn(shots, labels)
    mixed = (model.memory_.means[10:] + 0.5 * model.memory_.induced[10:]) / 1.5
    torch.testing.assert_close(model.memory_.vectors[10:], functional.normalize(mixed))


def test_auto_uses_the_measured_weight_of_as_many_shots(model, world):
    for n in (1, 3, 7):
        model.learn(*session(world, n=n))
        a = model.base_.prior.at(n)
        mixed = (1 - a) * model.memory_.means[10:] + a * model.memory_.induced[10:]
        torch.testing.assert_close(model.memory_.vectors[10:], functional.normalize(mixed))
        model.undo()


def test_auto_needs_a_measurement(make, world):
    model = make(alpha=0.3).fit(*world.draw(range(4), 6))
    with pytest.raises(InputError, match="α is 'auto', but it was a number"):
        model.set_params(alpha="auto").learn(*session(world))


@pytest.mark.parametrize("reading", ["posterior", "literal"])
def test_the_iterations_reach_the_closed_form(model, world, reading):
    model.set_params(reading=reading).learn(*session(world))
    exact = model.memory_.vectors
    model.undo()
    model.set_params(solver="sgdr").learn(*session(world))
    torch.testing.assert_close(model.memory_.vectors, exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "params",
    [{}, {"reading": "literal"}, {"calibration": "teen"}, {"calibration": "both"}, {"calibration": None}],
)
def test_one_class_at_a_time_is_all_at_once(model, world, params):
    model.set_params(**params)
    shots, labels = session(world)
    model.learn(shots, labels)
    together = model.memory_
    model.undo()
    for at in (0, 5, 10):
        model.learn(shots[at : at + 5], labels[at : at + 5])
    assert model.memory_.labels == together.labels
    torch.testing.assert_close(model.memory_.vectors, together.vectors, rtol=0, atol=1e-6)


def test_old_classes_stay_where_they_are(model, world):
    before = model.memory_.vectors.clone()
    model.learn(*session(world)).learn(*session(world, range(13, 15)))
    assert torch.equal(model.memory_.vectors[:10], before)


@pytest.mark.parametrize("params", [{}, {"calibration": "both"}, {"calibration": None}])
def test_more_images_later_are_as_good_as_at_once(model, world, params):
    model.set_params(**params)
    shots, labels = session(world, n=6)
    model.learn(shots, labels)
    at_once = model.memory_
    model.undo()
    first = torch.arange(18) % 6 < 2
    model.learn(shots[first], [label for label, own in zip(labels, first, strict=True) if own])
    model.learn(shots[~first], [label for label, own in zip(labels, first, strict=True) if not own], update=True)
    assert model.memory_.counts.tolist() == at_once.counts.tolist()
    torch.testing.assert_close(model.memory_.vectors, at_once.vectors, rtol=0, atol=1e-6)


@pytest.mark.parametrize("params", [{}, {"reading": "literal"}, {"calibration": "both"}])
def test_a_base_class_that_gets_more_images_stays_a_mean(model, world, params):
    more, labels = world.draw(range(2), 4, seed=9)
    model.set_params(**params).learn(more, labels, update=True)
    torch.testing.assert_close(model.memory_.vectors[:2], functional.normalize(model.memory_.means[:2]))
    assert model.memory_.counts[:3].tolist() == [16, 16, 12]
    assert model.memory_.base.sum() == 10


def test_a_literal_update_sees_the_past_as_its_mean(model, world):
    model.set_params(reading="literal", alpha=0.2)
    model.learn(*session(world, n=2)).learn(*session(world, n=3, seed=2), update=True)
    assert model.memory_.counts[10:].tolist() == [5, 5, 5]
    assert float(model.score(*session(world, n=20, seed=3))) > 0.8


def test_the_frame_of_a_trained_base_session_is_kept(make, world):
    frame = simplex_etf(6, 16, torch.Generator().manual_seed(0))
    model = make(embedding=Projection(24, 16, hidden=()), class_vectors=frame, power=1.0)
    model.fit(*world.draw(range(6), 8))
    torch.testing.assert_close(model.memory_.vectors, frame)
    model.learn(*world.draw(range(5, 8), 3, seed=1), update=True)
    torch.testing.assert_close(model.memory_.vectors[:6], frame)
    assert model.memory_.vectors[6:].shape == (2, 16)


def test_class_vectors_must_fit(make, world):
    data = world.draw(range(6), 8)
    with pytest.raises(InputError, match=r"shape \[5, 16\], but 6 base classes with embeddings of 16 features need"):
        make(embedding=Projection(24, 16, hidden=()), class_vectors=torch.eye(5, 16), power=1.0).fit(*data)
    with pytest.raises(InputError, match="without the embedding that was trained to them"):
        make(class_vectors=torch.eye(6, 24)).fit(*data)


@pytest.mark.parametrize("form", ["linear", "whitening", Projection(24, 16, hidden=())])
def test_sessions_do_not_care_which_form_g_has(make, world, form):
    model = make(embedding=form).fit(*world.draw(range(10), 12))
    model.learn(*session(world))
    assert model.score(*world.draw(range(13), 10, seed=4)) > 0.7


@pytest.mark.parametrize(
    ("params", "error", "sentence"),
    [
        ({"alpha": -1}, InputError, "α is -1; it must be a number >= 0"),
        ({"alpha": "automatic"}, InputError, "α is 'automatic'"),
        ({"solver": "exakt"}, UnknownNameError, "no fine-tuning solver called 'exakt'; did you mean 'exact'"),
        ({"reading": "prior"}, UnknownNameError, "no reading of the fine-tuning loss called 'prior'"),
        ({"calibration": "tee"}, UnknownNameError, "no calibration called 'tee'; did you mean 'teen'"),
        ({"teen": 2}, InputError, "TEEN's weight is 2"),
        ({"concepts": 0}, InputError, "`concepts` is 0; it must be a whole number >= 1"),
        ({"crops": 1.5}, InputError, "`crops` is 1.5"),
        ({"power": 0}, InputError, "The power is 0"),
        ({"embedding": "whitenin"}, UnknownNameError, "did you mean 'whitening'"),
        ({"embedding": Projection(9, 4, hidden=())}, InputError, "takes 9 features but the activations have 24"),
        ({"shrinkage": -2.0}, InputError, "The shrinkage is -2.0"),
        ({"backbone": "resnet19"}, UnknownNameError, "no backbone called 'resnet19'; did you mean"),
        ({"backbone": 3}, InputError, "The backbone is a int"),
    ],
)
def test_parameters_are_checked_by_fit(make, world, params, error, sentence):
    from masil.learner import Masil

    with pytest.raises(error, match=sentence):
        Masil(**{"backbone": None, "concepts": 8, **params}).fit(*world.draw(range(4), 5))
