"""scikit-learn's conventions hold: parameters, clone, pipelines, tags, and what is not fitted."""

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from masil.collapse import LinearMap
from masil.errors import InputError, MasilError
from masil.learner import Masil, NotFittedError


def test_init_only_stores():
    marker = object()
    model = Masil(backbone=marker, alpha=marker, concepts=marker)
    assert model.backbone is marker
    assert model.get_params()["alpha"] is marker
    assert not [name for name in vars(model) if name.endswith("_")]


def test_clone_copies_parameters_and_nothing_learnt(fitted):
    twin = clone(fitted)
    assert twin.get_params() == fitted.get_params()
    assert not hasattr(twin, "memory_")
    assert isinstance(clone(Masil(backbone=None, embedding=LinearMap(4))).embedding, LinearMap)


def test_set_params_suggests_the_parameter_that_was_meant():
    assert Masil().set_params(concepts=5, bias=0.1).concepts == 5
    with pytest.raises(InputError, match="no parameter 'concept'; did you mean 'concepts'"):
        Masil().set_params(concept=5)


def test_a_pipeline_in_front(world):
    shots, labels = world.draw(range(6), 8)
    signed = shots.numpy() - 1.0
    pipeline = make_pipeline(FunctionTransformer(lambda x: np.maximum(x + 1.0, 0)), Masil(backbone=None, concepts=4))
    plain = Masil(backbone=None, concepts=4).fit(np.maximum(signed + 1.0, 0), labels)
    assert pipeline.fit(signed, labels).predict(signed).tolist() == plain.predict(shots).tolist()
    assert pipeline.score(signed, labels) == plain.score(shots, labels)
    assert pipeline.classes_.tolist() == plain.classes_.tolist()


def test_scikit_learn_knows_it_for_a_classifier(fitted):
    assert is_classifier(fitted)
    check_is_fitted(fitted)
    assert fitted.__sklearn_tags__().input_tags.positive_only


BEFORE_FIT = [
    ("predict", [[1.0]]), ("predict_proba", [[1.0]]), ("score", [[1.0]], ["a"]), ("learn", [[1.0]], ["a"]),
    ("explain", [1.0]), ("undo",), ("forget", "a"), ("save", "nowhere.masil"), ("classes_",), ("sessions_",),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), [(name, arguments) for name, *arguments in BEFORE_FIT])
def test_before_fit_everything_says_so(name, arguments):
    for family in (NotFittedError, MasilError, ValueError, AttributeError):
        with pytest.raises(family, match="has learnt nothing yet; call `fit` with the base session first"):
            getattr(Masil(backbone=None), name)(*arguments)


def test_repr_shows_what_was_changed():
    assert repr(Masil(backbone=None, concepts=5)) == "Masil(backbone=None, concepts=5)"
    assert repr(Masil()) == "Masil()"
