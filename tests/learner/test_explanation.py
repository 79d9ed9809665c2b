"""An explanation adds up: concepts, rest and offset make the difference of the two scores."""

import pytest
import torch

from masil.collapse import Projection
from masil.errors import InputError


@pytest.mark.parametrize("embedding", ["whitening", "linear", Projection(24, 16, hidden=(8,))])
def test_contributions_sum_to_the_difference(make, world, embedding):
    model = make(embedding=embedding, bias=0.01).fit(*world.draw(range(6), 8)).learn(*world.draw(range(6, 8), 4))
    images, _ = world.draw(range(8), 1, seed=3)
    for image in images:
        told = model.explain(image)
        assert told.label == model.predict(image[None])[0]
        z = model.base_.embed(image[None])[0]
        scores = dict(zip(model.memory_.labels, (model.memory_.vectors @ z - model.offsets_).tolist(), strict=True))
        assert told.difference == pytest.approx(scores[told.label] - scores[told.runner_up], abs=1e-6)
        assert told.difference >= 0
        assert float(told.contributions.sum()) + told.rest + told.offset == pytest.approx(told.difference, abs=1e-6)
        assert told.heat is None


def test_with_an_affine_g_a_contribution_is_what_the_concept_adds(model, world):
    images, _ = world.draw(range(10), 1, seed=3)
    told = model.explain(images[4], count=8)
    base = model.base_
    x = base.door(images[4:5])
    w = {label: model.memory_.vectors[row] for row, label in enumerate(model.memory_.labels)}
    apart = w[told.label] - w[told.runner_up]
    length = base.embedding.transform(x).norm()
    for j in range(base.bank.v):
        without = x - told.coefficients[j] * base.bank.concepts[j]
        lost = (base.embedding.transform(x) - base.embedding.transform(without))[0] @ apart / length
        assert float(told.contributions[j]) == pytest.approx(float(lost), abs=1e-5)
    shares = told.contributions[list(told.concepts)]
    assert bool((shares > 0).all())
    assert shares.tolist() == sorted(shares.tolist(), reverse=True)
    assert len(told.concepts) == int((told.contributions > 0).sum())


def test_one_image_at_a_time(model, world):
    images, _ = world.draw(range(10), 1)
    assert model.explain(images[:1]).label == model.explain(images[0].tolist()).label
    with pytest.raises(InputError, match="One image is explained at a time, but 10 were given"):
        model.explain(images)


def test_a_single_class_has_no_runner_up(make, world):
    model = make().fit(*world.draw(range(2), 5))
    model.forget("c01")
    told = model.explain(world.draw(range(1), 1)[0][0])
    assert (told.label, told.runner_up) == ("c00", None)
    assert told.offset == pytest.approx(-float(model.offsets_[0]))
    assert isinstance(told.contributions, torch.Tensor)
