import json

import pytest
import torch
from safetensors.torch import load, save

from masil.collapse import EMBEDDINGS, Embedding, LinearMap, Projection, Whitening, embedding_from_state
from masil.errors import InputError, StorageError, UnknownNameError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def activations(n=40, d=6, seed=0):
    return torch.randn(n, d, generator=seeded(seed)).relu()


FORMS = {
    "projection": lambda: Projection(6, 9, hidden=(7, 5), generator=seeded(4)),
    "projection without a skip": lambda: Projection(6, 9, hidden=(7,), skip=False),
    "identity": lambda: LinearMap(6),
    "linear map": lambda: LinearMap.from_weight(torch.randn(4, 6, generator=seeded(5))),
    "whitening": lambda: Whitening.fit(activations(), torch.arange(40) % 4),
}

every_form = pytest.mark.parametrize("make", FORMS.values(), ids=FORMS.keys())


def test_every_form_is_under_the_conformance_tests():
    assert {type(make()) for make in FORMS.values()} == set(EMBEDDINGS.values())


@every_form
def test_embeddings_have_unit_length_and_the_width_that_was_said(make):
    g = make()
    assert isinstance(g, Embedding)
    a = activations(seed=1)
    before = a.clone()
    z = g(a)
    assert z.shape == (40, g.features_out)
    alive = g.transform(a).norm(dim=1) > 0
    torch.testing.assert_close(z[alive].norm(dim=1), torch.ones(int(alive.sum())))
    torch.testing.assert_close(z * g.transform(a).norm(dim=1, keepdim=True), g.transform(a))
    assert torch.equal(a, before)
    assert g(a[:0]).shape == (0, g.features_out)
    torch.testing.assert_close(g.eval()(a[3:5]), g(a)[3:5])  # rows do not know of each other
    with pytest.raises(InputError, match=r"shape \[3, 5\] but this .* takes \[n 6\]; were they computed with the same"):
        g(torch.zeros(3, 5))


@every_form
def test_a_saved_map_is_the_same_map(make):
    g = make()
    config, state = json.loads(json.dumps(g.config(), allow_nan=False)), load(save(g.state()))
    again = embedding_from_state(g.form, config, state)
    assert type(again) is type(g)
    assert (again.features_in, again.features_out, again.config()) == (g.features_in, g.features_out, g.config())
    assert torch.equal(again(activations(seed=1)), g(activations(seed=1)))


@every_form
def test_gradients_reach_the_activations_even_where_they_are_zero(make):
    a = activations(seed=1).requires_grad_()
    assert bool((a == 0).any())
    make()(a).sum().backward()
    assert a.grad is not None
    assert bool(a.grad.isfinite().all())
    assert bool((a.grad != 0).any())


@every_form
def test_a_state_that_does_not_fit_is_refused(make):
    g = make()
    sentence = rf"saved {g.form} does not fit its description \(.+\)"
    wrong = [{**g.state(), "stray": torch.zeros(1)}]
    for name, value in g.state().items():
        others = {other: kept for other, kept in g.state().items() if other != name}
        wrong += [others, {**others, name: value.flatten()[:1]}]
    for state in wrong:
        with pytest.raises(StorageError, match=sentence):
            type(g).from_state(g.config(), state)
    with pytest.raises(StorageError, match=sentence):
        type(g).from_state({**g.config(), "stray": 1}, g.state())


def test_a_misspelt_form_and_a_map_to_nothing_are_refused():
    with pytest.raises(UnknownNameError, match="no form of embedding called 'whitenin'; did you mean 'whitening'"):
        embedding_from_state("whitenin", {}, {})
    with pytest.raises(InputError, match=r"hidden widths of a projection are \[8, 0\]"):
        Projection(6, 4, hidden=(8, 0))
    with pytest.raises(InputError, match="map from 6 to 0 features"):
        Projection(6, 0)
    with pytest.raises(InputError, match="map from 0 to 0 features"):
        LinearMap(0)
