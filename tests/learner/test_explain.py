"""An explanation adds up: concepts, rest and offset make the difference of the two scores."""

import numpy as np
import pytest
import torch
from torch import nn

from masil.backbones import ModuleBackbone
from masil.collapse import LinearMap, Projection
from masil.concepts import BankRecord, ConceptBank, location_maps
from masil.data import Framing, array_images
from masil.errors import InputError
from masil.learner import Base, Masil
from masil.learner.explain import nearest_crops


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
    x = base.take_power(images[4:5])
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
    assert model.explain(images[4:5]).label == model.explain(images[4].tolist()).label == told.label
    with pytest.raises(InputError, match="One image is explained at a time, but 10 were given"):
        model.explain(images)


def test_a_single_class_has_no_runner_up(make, world):
    model = make().fit(*world.draw(range(2), 5))
    model.forget("c01")
    told = model.explain(world.draw(range(1), 1)[0][0])
    assert (told.label, told.runner_up) == ("c00", None)
    assert told.offset == pytest.approx(-float(model.offsets_[0]))
    assert isinstance(told.contributions, torch.Tensor)


FRAMING = Framing(28, 28)


@pytest.fixture
def colours():
    """A backbone whose three features are the red, green and blue of each 4 × 4 square."""
    pool = nn.Sequential(nn.AvgPool2d(4), nn.ReLU())
    return ModuleBackbone(pool, FRAMING, name="colours", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


@pytest.fixture
def base():
    bank = ConceptBank(torch.eye(3), BankRecord(3, 0, 1, True, 0.0))
    return Base(1.0, LinearMap(3), bank, prior=None, temperature=1.0, framed=False)


def test_a_crop_is_cut_where_the_concept_is(colours, base):
    pixels = np.zeros((4, 3, 28, 28), np.uint8)
    pixels[2, 0, 12:16, 20:24] = 255  # red in image 2
    pixels[1, 0, 0:4, 0:4] = 120  # and less of it in a corner of image 1
    pixels[3, 2] = 90  # blue all over image 3
    red, blue = nearest_crops(base, colours, array_images(pixels), (0, 2))
    assert [crop.image for crop in red] == ["array[2]", "array[1]"]  # the others have none
    assert red[0].coefficient == pytest.approx(1)
    top, left, side = red[0].box
    assert (side, red[0].pixels.shape) == (8, (3, 8, 8))
    assert (top, left) == (14 - 4, 22 - 4)
    assert int(red[0].pixels[0].max()) == 255
    assert red[1].box == (0, 0, 8)
    assert [crop.image for crop in blue] == ["array[3]"]
    with pytest.raises(InputError, match="There are no photos to show concepts in"):
        nearest_crops(base, colours, array_images(np.zeros((0, 3, 28, 28), np.uint8)), (0,))


def test_one_pass_gives_every_map(monkeypatch):
    """One decode, one run of the backbone and one NNLS; the maps are those of each concept by itself."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU())
    backbone = ModuleBackbone(network, FRAMING, name="small")
    draw = np.random.default_rng(0)
    coarse = draw.integers(0, 255, (4, 7, 7, 3)).repeat(4, 1).repeat(4, 2)[np.arange(24) % 4]
    pixels = (coarse + draw.integers(0, 30, (24, 28, 28, 3))).clip(0, 255).astype(np.uint8)
    labels = [f"k{position % 4}" for position in range(24)]
    model = Masil(backbone, concepts=4, embedding="linear", alpha=0.3, device="cpu").fit(pixels, labels)
    asked = max(pixels[:4], key=lambda one: len(model.explain(one, count=4).concepts))
    calls = {"maps": 0, "nnls": 0, "load": 0}

    def counted(name, function):
        def call(*arguments, **options):
            calls[name] += 1
            return function(*arguments, **options)

        return call

    images = array_images(asked[None].transpose(0, 3, 1, 2).copy())
    with monkeypatch.context() as patch:
        patch.setattr(ModuleBackbone, "maps", counted("maps", ModuleBackbone.maps))
        patch.setattr(ConceptBank, "coefficients", counted("nnls", ConceptBank.coefficients))
        patch.setattr(type(images.source), "load", counted("load", type(images.source).load))
        patch.setattr(model.encoder_, "activations", lambda *_: pytest.fail("a second run"))
        told = model.explain(images, count=4)
    assert calls == {"maps": 1, "nnls": 1, "load": 1}
    assert len(told.concepts) > 1
    assert torch.equal(told.pixels, torch.from_numpy(asked).permute(2, 0, 1))
    assert told.answer.top[0].label == told.label
    base = model.base_
    for j, heat in zip(told.concepts, told.heat, strict=True):
        alone = location_maps(
            backbone, told.pixels[None], lambda a, j=j: base.bank.coefficients(base.take_power(a))[:, j]
        )
        torch.testing.assert_close(heat, alone.heat[0], atol=1e-4, rtol=1e-3)
    sums = float(told.contributions[list(told.concepts)].sum())
    assert told.others == pytest.approx(float(told.contributions.sum()) - sums, abs=1e-6)
    assert all(float(told.contributions[j]) < 0 for j in told.against(4))
