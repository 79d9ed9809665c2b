"""The conformance suite: what holds for every learner, whatever its settings, and what it says to bad input."""

import gc
import pickle
import subprocess
import sys
import types
from copy import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from masil.data import array_images
from masil.errors import InputError
from masil.learner import Masil

SETTINGS = [
    {},
    {"calibration": "both", "bias": 0.02},
    {"calibration": None},
    {"reading": "literal", "alpha": 0.3, "solver": "sgdr"},
    {"embedding": "linear", "power": 1.0},
]


@pytest.fixture(scope="module", params=SETTINGS, ids=str)
def once_taught(request, world):
    """Eight base classes and two sessions; not to be changed, see `taught`."""
    model = Masil(backbone=None, concepts=8, **request.param).fit(*world.draw(range(8), 10))
    model.learn(*world.draw(range(8, 11), 5, seed=1), taught_by="Ada", note="garden")
    return model.learn(*world.draw(range(11, 12), 2, seed=1))


@pytest.fixture
def taught(once_taught):
    return copy(once_taught)


def test_every_class_taught_is_told_apart_and_reachable_and_no_other(taught, world):
    assert taught.score(*world.draw(range(12), 20, seed=3)) > 0.8
    images, _ = world.draw(range(20), 30, seed=2)
    assert set(taught.predict(images).tolist()) == {f"c{c:02}" for c in range(12)}


def test_probabilities_are_probabilities_and_agree_with_predictions(taught, world):
    images, _ = world.draw(range(12), 5, seed=4)
    p = taught.predict_proba(images)
    assert p.shape == (60, 12)
    np.testing.assert_allclose(p.sum(1), 1)
    columns = {label: column for column, label in enumerate(taught.classes_.tolist())}
    chosen = p[np.arange(60), [columns[label] for label in taught.predict(images).tolist()]]
    np.testing.assert_allclose(chosen, p.max(1), rtol=1e-4)


def test_neither_inputs_nor_global_randomness_are_changed(make, world):
    base, labels = world.draw(range(6), 6)
    shots, names = world.draw(range(6, 8), 3)
    copies, state = (base.clone(), list(labels), shots.clone(), list(names)), torch.random.get_rng_state()
    model = make().fit(base, labels).learn(shots, names)
    model.predict(shots)
    model.explain(shots[0])
    assert torch.equal(base, copies[0])
    assert torch.equal(shots, copies[2])
    assert (labels, names) == (copies[1], copies[3])
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.usefixtures("one_thread")
def test_the_same_seed_gives_the_same_bits(make, world):
    first, same = (make(seed=3).fit(*world.draw(range(6), 8)).learn(*world.draw(range(6, 8), 3)) for _ in range(2))
    assert torch.equal(first.memory_.vectors, same.memory_.vectors)
    assert first.base_.temperature == same.base_.temperature
    assert first.base_.prior == same.base_.prior


def reachable(root):
    """Every object that can be reached from `root`, code and modules left out."""
    seen, waiting = {}, [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | types.ModuleType | types.FunctionType | types.CodeType):
            continue
        seen[id(one)] = one
        waiting += gc.get_referents(one)
        waiting += list(getattr(one, "__dict__", {}).values())
    return seen.values()


def remembers(tensors, rows):
    """Whether any row of any tensor is one of `rows`, whatever its length, or as many rows as there were images."""
    for tensor in tensors:
        if tensor.ndim and tensor.shape[0] == len(rows):
            return True
        alike = tensor.ndim == 2 and tensor.shape[1] == rows.shape[1]
        if alike and float(torch.cdist(tensor.double(), rows.double()).min()) < 1e-5:
            return True
    return False


def test_no_image_of_the_past_survives(make, world, tmp_path):
    base, labels = world.draw(range(8), 11)
    shots, names = world.draw(range(8, 11), 7, seed=1)
    model = make().fit(base, labels).learn(shots, names)
    model.predict(base)
    held = [one for one in reachable(model) if isinstance(one, torch.Tensor | np.ndarray)]
    tensors = [torch.as_tensor(one).detach() for one in held]
    assert len(tensors) > 10
    model.save(tmp_path / "m.masil")
    saved = list(load_file(tmp_path / "m.masil").values())
    for past in (base, shots):
        embeddings = model.base_.embed(past)
        for rows in (past, past.sqrt(), embeddings, model.base_.bank.coefficients(past.sqrt())):
            assert not remembers(tensors, rows)
            assert not remembers(saved, rows)
    model.secret = base[3:4].clone()  # the search finds what is there
    assert remembers([x for x in reachable(model) if isinstance(x, torch.Tensor)], base)


def test_a_known_class_needs_update(model, world):
    before = model.memory_
    with pytest.raises(
        InputError, match="The class 'c04' is known already; to add images to it, teach it with `update`"
    ):
        model.learn(*world.draw(range(4, 12), 2))
    assert model.memory_ is before
    model.learn(*world.draw(range(4, 12), 2), update=True)
    assert model.classes_.tolist() == [f"c{c:02}" for c in range(12)]


@pytest.mark.usefixtures("one_thread")
def test_undo_goes_back_exactly(taught, world):
    images, _ = world.draw(range(12), 10, seed=5)
    before, log = taught.predict_proba(images), len(taught.log_)
    taught.learn(*world.draw(range(12, 14), 4))
    taught.learn(*world.draw(range(10, 13), 4, seed=8), update=True)
    assert taught.undo().classes == ("c10", "c11", "c12")
    assert taught.undo().number == 3
    assert np.array_equal(taught.predict_proba(images), before)
    assert [event.what for event in taught.log_[log:]] == ["taught", "taught", "undone", "undone"]


def test_a_forgotten_class_is_gone_everywhere(taught, world, tmp_path):
    images, _ = world.draw(range(12), 10, seed=5)
    taught.set_params(balance=0)  # what classes expect, on average over their kind, changes with those there are
    before = taught.predict_proba(images)
    row = taught.memory_.means[9].clone()
    taught.forget("c09")
    taught.forget("c02")
    keep = [c for c in range(12) if c not in (2, 9)]
    assert taught.classes_.tolist() == [f"c{c:02}" for c in keep]
    after = taught.predict_proba(images)
    # A cosine is a sum of d products, and rounds by d eps at most, in another order with fewer columns; the temperature
    # turns that into a part of a probability, once for its class and once for their sum, here and before.
    rounding = 4 * taught.memory_.vectors.shape[1] * torch.finfo(torch.float32).eps * taught.base_.temperature
    assert rounding < 1e-3
    np.testing.assert_allclose(after, before[:, keep] / before[:, keep].sum(1, keepdims=True), rtol=rounding)
    held = [x.detach() for x in reachable(taught) if isinstance(x, torch.Tensor)]
    assert not remembers(held, row[None].repeat(1000, 1))
    assert taught.log_[-1].what == "forgotten"
    assert taught.log_[-1].images == (("c02", 10),)
    taught.learn(*world.draw(range(9, 10), 3))
    assert "c09" in taught.classes_


def test_forgetting_and_undoing_together(taught, world):
    taught.forget("c11")  # all that session 2 taught
    assert [record.number for record in taught.sessions_] == [0, 1]
    assert taught.undo().classes == ("c08", "c09", "c10")
    with pytest.raises(InputError, match="Only the base session is left"):
        taught.undo()
    with pytest.raises(InputError, match="no class 'c80' to forget; did you mean 'c0"):
        taught.forget("c80")
    for c in range(7):
        taught.forget(f"c{c:02}")
    with pytest.raises(InputError, match="'c07' is the only class left"):
        taught.forget("c07")
    taught.learn(*world.draw(range(8, 9), 3))
    assert taught.classes_.tolist() == ["c07", "c08"]
    taught.forget("c07")
    with pytest.raises(InputError, match="Without the last session no class would be left"):
        taught.undo()
    assert taught.predict(world.draw(range(3), 1)[0]).tolist() == ["c08"] * 3


def test_the_audit_says_who_taught_what_when_from_how_many_images(taught):
    base, garden, last = taught.sessions_
    assert (base.number, garden.number, last.number) == (0, 1, 2)
    assert (garden.who, garden.note) == ("Ada", "garden")
    assert garden.images == (("c08", 5), ("c09", 5), ("c10", 5))
    assert last.classes == ("c11",)
    assert garden.when.endswith("+00:00")
    assert base.who


def test_whole_numbers_stay_whole_numbers(make, world):
    base, labels = world.draw(range(5), 6)
    shots, names = world.draw(range(5, 7), 3)
    number = {f"c{c:02}": 100 - c for c in range(7)}
    model = make().fit(base, [number[label] for label in labels])
    model.learn(shots.numpy(), np.array([number[label] for label in names]))
    assert model.classes_.tolist() == [96, 97, 98, 99, 100, 94, 95]
    assert model.predict(shots).dtype == np.int64
    assert model.score(shots, torch.tensor([number[label] for label in names])) > 0.8
    assert {type(label) for label in model.memory_.labels} == {int}
    model.forget(np.int64(97))
    assert 97 not in model.classes_


def test_the_order_of_images_does_not_matter(make, world):
    images, labels = world.draw(range(6), 8)
    shots, names = world.draw(range(6, 9), 4)
    model = make(alpha=0.3).fit(images, labels)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    model.learn(shots, names)
    straight = model.memory_.vectors
    model.undo()
    model.learn(shots[order], [names[i] for i in order])
    torch.testing.assert_close(model.memory_.vectors, straight)


def test_a_bias_favours_new_classes(model, world):
    model.learn(*world.draw(range(10, 16), 2))
    images, _ = world.draw(range(16), 20, seed=3)
    new = [f"c{c}" for c in range(10, 16)]
    shares = [np.isin(model.set_params(bias=b).predict(images), new).mean() for b in (-1.0, 0.0, 0.05, 3.0)]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)


def test_a_failed_fit_leaves_what_was_learnt(model, world):
    before = model.memory_
    with pytest.raises(InputError, match="teaches 1 class"):
        model.fit(*world.draw(range(1), 5))
    assert model.memory_ is before


@pytest.mark.usefixtures("one_thread")
def test_it_can_be_pickled(model, world):
    images, _ = world.draw(range(10), 3)
    twin = pickle.loads(pickle.dumps(model))
    assert np.array_equal(twin.predict_proba(images), model.predict_proba(images))


def test_classes_of_one_image_and_more_concepts_than_there_can_be(make, world):
    base, labels = world.draw(range(6), 4)
    keep = [i for i in range(24) if not 0 < i < 4]
    model = make(concepts=500).fit(base[keep], [labels[i] for i in keep])
    assert model.base_.bank.v == len(keep)
    model.learn(*world.draw(range(6, 8), 1))
    assert model.memory_.counts.tolist() == [1, 4, 4, 4, 4, 4, 1, 1]
    assert set(model.predict(world.draw(range(8), 10, seed=2)[0])) <= set(model.classes_)


def test_base_classes_of_one_image_each_have_no_scatter_to_whiten_by(make, world):
    data = world.draw(range(6), 1)
    with pytest.raises(InputError, match="classes has one image.*whitening needs at least one class with two"):
        make().fit(*data)
    model = make(embedding="linear").fit(*data)
    assert model.learn(*world.draw(range(6, 7), 1)).score(*data) == 1


ONE = torch.ones(1, 24)
BAD_IMAGES = [
    (torch.zeros(0, 24), "There are no images in this session"),
    ([], "must be activations"),
    (array_images(np.zeros((1, 3, 8, 8), np.uint8)), r"no backbone, so it takes activations \[n d\] and not images"),
    ([1.0, 2.0], r"must be activations \[n d\], but has the shape \[2\]"),
    (["owl.png"], r"must be activations \[n d\], but is a list; give Masil a backbone"),
    (object(), r"must be activations \[n d\], but is a object"),
    (torch.ones(2, 23), "have 23 features but the model has learnt from 24; were they computed with the same"),
    (torch.cat([ONE, torch.nan * ONE]), "of image 1 are infinite or not a number"),
    (torch.cat([ONE, -0.5 * ONE]), "of image 1 go down to -0.5, but concepts need activations >= 0"),
]
NO_NAMES = [2.0, None, True, "", b"owl", ("a", "b"), np.float32(1.5), np.bool_(True)]
BAD_LABELS = [
    (["a"], "There are 2 images but 1 labels"),
    ([7, 8], "label of image 0 is 7 but others are like 'c00'"),
    (None, "must be a sequence with one label for each image, but are None"),
    ("owl", "must be a sequence"),
    (np.ones((2, 1), int), r"must be \[n\], one for each image, but have the shape \[2, 1\]"),
    *((["a", name], "The label of image 1 is .*strings that are not empty, or by whole numbers") for name in NO_NAMES),
]


@pytest.mark.parametrize(
    ("images", "labels", "sentence"),
    [(images, [], sentence) for images, sentence in BAD_IMAGES]
    + [(torch.ones(2, 24), labels, sentence) for labels, sentence in BAD_LABELS],
)
def test_bad_sessions_are_refused_and_change_nothing(model, images, labels, sentence):
    before = model.memory_, model.log_
    with pytest.raises(InputError, match=sentence):
        model.learn(images, labels)
    assert (model.memory_, model.log_) == before
    assert model.encoder_.features == 24


def test_activations_and_names_come_in_any_wrapping(model, make, world):
    images, names = world.draw(range(10, 12), 1)
    expected = model.predict_proba(images)
    for form in (images.tolist(), images.numpy(), images.double().numpy(), images.double()):
        np.testing.assert_allclose(model.predict_proba(form), expected, atol=1e-6)
    for wrap in (list, tuple, np.array, lambda words: np.array(words, dtype=object)):
        assert model.learn(images, wrap(names)).undo().classes == ("c10", "c11")
    with pytest.raises(InputError, match="label of image 1 is 'owl' but others are like 3"):
        make().fit(images, [3, "owl"])
    with pytest.raises(InputError, match="The class name is 1.5"):
        model.forget(1.5)


def test_predicting_nothing_gives_nothing(model):
    assert model.predict(torch.zeros(0, 24)).shape == (0,)
    assert model.predict_proba(torch.zeros(0, 24)).shape == (0, 10)


def test_the_learner_is_there_without_scipy():
    """Its import takes a third as long as that of torch, and no answer needs it."""
    subprocess.run([sys.executable, "-c", "import masil.learner, sys; sys.exit('scipy' in sys.modules)"], check=True)
