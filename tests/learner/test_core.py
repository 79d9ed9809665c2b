"""The core: what the base session learns, what a session does to class vectors, and what it leaves alone."""

import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from masil.collapse import Projection, Whitening, class_means, simplex_etf
from masil.concepts import ConceptBank
from masil.errors import InputError, NoEffectWarning, UnknownNameError
from masil.learner import Masil, Settings, Shots, fit_base, fit_concepts, score, take_power, teach
from masil.learner.embeddings import Embeddings
from masil.learner.prior import measure
from masil.protocol import class_folds


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
    x = model.base_.take_power(shots)
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
        ({"shrinkage": True}, InputError, "The shrinkage is True"),
        ({"bias": "0"}, InputError, "`bias` is '0'; it must be a number"),
        ({"seed": -1}, InputError, "The seed is -1; it must be a whole number from 0 to 2⁶³ − 1"),
        ({"seed": 2**64}, InputError, "The seed is 18446744073709551616"),
        ({"backbone": "resnet19"}, UnknownNameError, "no backbone called 'resnet19'; did you mean"),
        ({"backbone": 3}, InputError, "The backbone is a int"),
    ],
)
def test_parameters_are_checked_by_fit(make, world, params, error, sentence):
    with pytest.raises(error, match=sentence):
        Masil(**{"backbone": None, "concepts": 8, **params}).fit(*world.draw(range(4), 5))


@pytest.mark.parametrize("power", [0.5, 0.25, 1.0])
def test_the_power_and_its_gradient(power):
    a = torch.tensor([0.0, 0.25, 4.0], requires_grad=True)
    raised = take_power(a, power)
    torch.testing.assert_close(raised, torch.tensor([0.0, 0.25, 4.0]) ** power)
    (gradient,) = torch.autograd.grad(raised.sum(), a)
    assert bool(gradient.isfinite().all())


def shots_of(x, codes):
    return Shots(x, codes, tuple(range(int(codes.max()) + 1)))


@pytest.mark.parametrize("crops", [1, 2])
def test_every_class_is_reconstructed_by_a_bank_without_it(monkeypatch, crops):
    codes = torch.arange(7).repeat_interleave(4)
    x = torch.rand(28, 9, generator=torch.Generator().manual_seed(0))
    rows, row_codes = x.repeat_interleave(crops, 0), codes.repeat_interleave(crops)
    seen = []

    class Bank:
        v = 3

        def __init__(self, given):
            seen.append({int(row_codes[(rows == row).all(1)][0]) for row in given})

        def refit(self, given, **_):
            return Bank(given)

        def reconstruct(self, given):
            classes = {int(codes[(x == row).all(1)][0]) for row in given}
            assert classes
            assert not classes & seen[-1]
            assert classes | seen[-1] == set(range(7))
            return 2 * given

    monkeypatch.setattr(ConceptBank, "fit", lambda given, *_, **__: Bank(given))
    concepts = fit_concepts(shots_of(x, codes), Settings(concepts=3), rows)
    assert torch.equal(concepts.held_out, 2 * x)
    assert [len(classes) for classes in seen] == [7, 4, 5, 5]
    assert fit_concepts(shots_of(x, codes), Settings(concepts=3, alpha=0.1), rows).held_out is None


@pytest.mark.parametrize("concepts", [2, 6])  # of which four rows have too few
def test_two_classes_are_enough_to_hold_one_out(concepts):
    x = torch.rand(8, 9, generator=torch.Generator().manual_seed(0))
    found = fit_concepts(shots_of(x, torch.arange(2).repeat_interleave(4)), Settings(concepts=concepts))
    assert found.held_out.shape == x.shape


def test_a_few_images_of_each_class_are_reconstructed(monkeypatch):
    monkeypatch.setattr("masil.learner.prior.MEASURED", 5)
    codes = torch.arange(3).repeat_interleave(torch.tensor([4, 9, 7]))
    x = torch.rand(20, 9, generator=torch.Generator().manual_seed(0))
    found = fit_concepts(shots_of(x, codes), Settings(concepts=2))
    assert torch.bincount(codes[found.measured]).tolist() == [4, 5, 5]
    assert found.held_out.shape == (14, 9)


@pytest.mark.parametrize("seed", range(3))
def test_the_weight_of_the_prior_is_that_of_banks_fitted_from_nothing_to_all_rows(world, seed):
    """The slow and obvious way: no sample, no beginning with concepts of all classes, a fine tolerance."""
    x, names = world.draw(range(20), 20, seed)
    shots = Shots(take_power(x, 0.5), torch.arange(20).repeat_interleave(20), tuple(names[::20]))
    found = fit_base(shots, Settings(concepts=8))[0]
    slow = torch.empty_like(shots.x)
    for fold in class_folds(shots.codes, 3, torch.Generator().manual_seed(0)):
        inside = torch.isin(shots.codes, fold)
        slow[inside] = ConceptBank.fit(shots.x[~inside], 8, tol=1e-5, max_iterations=1000).reconstruct(shots.x[inside])
    g = found.embedding
    expected = measure(g(shots.x), g(slow), shots.codes, seed=0)
    assert found.prior.shots == expected.shots
    # Other local minima differ by .04; a bank that has seen the classes held out gives .25 more.
    assert found.prior.weights == pytest.approx(expected.weights, abs=0.08)


@pytest.mark.parametrize("seed", range(3))
def test_a_bank_of_some_rows_serves_as_well_as_one_of_all(monkeypatch, world, seed):
    """The slow and obvious way: all rows and a fine tolerance."""
    monkeypatch.setattr("masil.learner.prior.ROWS_PER_CONCEPT", 16)
    x, names = world.draw(range(15), 40, seed)
    shots = Shots(take_power(x, 0.5), torch.arange(15).repeat_interleave(40), tuple(names[::40]))
    unseen, new_names = world.draw(range(15, 20), 5, seed + 100)
    new = Shots(take_power(unseen, 0.5), torch.arange(5).repeat_interleave(5), tuple(new_names[::5]))
    found = fit_concepts(shots, Settings(concepts=8))
    slow = replace(found, bank=ConceptBank.fit(shots.x, 8, tol=1e-5, max_iterations=1000))
    assert found.bank.record.rows == 128 < slow.bank.record.rows == 600
    assert found.bank.relative_error(new.x) <= 1.25 * slow.bank.relative_error(new.x)
    fast, sure = (
        teach(*fit_base(shots, Settings(concepts=8), concepts=each, confidence=False), new, Settings(concepts=8))
        for each in (found, slow)
    )
    assert float((fast.vectors * sure.vectors).sum(1).min()) > 0.95  # other local minima reach .996, and 1.05 above


@pytest.mark.parametrize("shrinkage", [1.0, 0.0, "auto", "sampling"])
def test_moments_of_parts_add_up_to_those_of_all_their_rows(world, shrinkage):
    """g of some parts, and of rows that are no whole parts, is g of these rows alone, up to a rotation."""
    x, names = world.draw(range(6), 12)
    shots, settings = Shots(x, torch.arange(6).repeat_interleave(12), names[::12]), Settings(shrinkage=shrinkage)
    parts = shots.codes % 3 + 3 * (torch.arange(72) % 4 == 0)
    embeddings = Embeddings(shots, settings, parts)
    torch.testing.assert_close(embeddings.of_all()(x), Whitening.fit(x, shots.codes, shrinkage)(x))
    for rows in (parts < 3, parts % 3 != 1, torch.arange(72) % 5 > 0):
        codes = torch.unique(shots.codes[rows], return_inverse=True)[1]
        z, expected = (g.transform(x) for g in (embeddings.of_rows(rows), Whitening.fit(x[rows], codes, shrinkage)))
        torch.testing.assert_close(z @ z.T, expected @ expected.T, rtol=1e-4, atol=1e-3)


def test_the_temperature_is_that_of_images_whitening_has_not_seen():
    """Whitening with few images fits their noise: judged on them, everything would look certain."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.arange(30).repeat_interleave(5)
    x = 1.5 + 0.3 * torch.rand(30, 80, generator=generator)[codes] + 0.3 * torch.randn(150, 80, generator=generator)
    settings = Settings(shrinkage=0.01, power=1.0, alpha=0.0, concepts=2)
    honest, honest_rows = fit_base(shots_of(x, codes), settings)
    fooled, fooled_rows = fit_base(shots_of(x, codes), replace(settings, embedding=Whitening.fit(x, codes, 0.01)))
    assert honest.temperature < 0.8 * fooled.temperature
    assert bool((honest_rows.own_scores < fooled_rows.own_scores).all())


@pytest.mark.usefixtures("one_thread")
def test_predictions_do_not_need_confidence(make, world, monkeypatch):
    data, asked = world.draw(range(6), 8), world.draw(range(8), 3, seed=2)[0]
    sure = make().fit(*data).learn(*world.draw(range(6, 8), 3))
    for name in ("calibration.temperature", "fit_detector"):
        monkeypatch.setattr(f"masil.learner.core.{name}", lambda *_, **__: pytest.fail("paid for nothing"))
    quick = make().fit(*data, confidence=False).learn(*world.draw(range(6, 8), 3))
    assert quick.predict(asked).tolist() == sure.predict(asked).tolist()
    assert torch.equal(quick.memory_.vectors, sure.memory_.vectors)
    assert quick.answer(asked).known is None


def test_the_core_is_what_the_learner_does(model, world):
    """`fit_base`, `teach` and `score` alone give what `Masil` gives."""
    images, labels = world.draw(range(10), 12)
    shots = Shots(take_power(images, 0.5), torch.tensor([int(c[1:]) for c in labels]), tuple(sorted(set(labels))))
    settings = Settings(concepts=8)
    base, memory = fit_base(shots, settings)
    new, names = session(world)
    taught = teach(
        base, memory, Shots(take_power(new, 0.5), torch.arange(3).repeat_interleave(5), names[::5]), settings
    )
    memory = memory.updated(taught)
    asked, _ = world.draw(range(13), 4, seed=3)
    scores = score(base, memory, take_power(asked, 0.5), settings, known=True)
    model.learn(new, names)
    torch.testing.assert_close(memory.vectors, model.memory_.vectors)
    expected = torch.as_tensor(model.predict_proba(asked))
    torch.testing.assert_close(torch.softmax(base.temperature * scores.values.double(), 1), expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(scores.known, torch.as_tensor(model.known(asked)))
