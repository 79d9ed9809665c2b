"""Images through a backbone: every form alike, crops for the bank, explanations with heat maps."""

import copy

import numpy as np
import pytest
import torch
from PIL import Image

from masil.backbones import create, extract
from masil.collapse import Projection, simplex_etf
from masil.data import array_images
from masil.errors import DataError, InputError
from masil.learner import Masil
from masil.learner.encoder import Encoder
from masil.training import RECIPES, Trained


@pytest.fixture(scope="module")
def seen(backbone, pictures):
    return Masil(backbone, concepts=6, crops=3, device="cpu").fit(*pictures(range(5), 6))


def test_it_learns_from_pixels(seen, pictures):
    model = copy.copy(seen)
    model.learn(*pictures(range(5, 7), 3, seed=1))
    assert model.score(*pictures(range(7), 5, seed=2)) > 0.8


def test_paths_pictures_arrays_and_images_are_alike(seen, tmp_path, pictures):
    pixels, _ = pictures(range(5), 2, seed=3)
    paths = [tmp_path / f"{i}.png" for i in range(len(pixels))]
    for path, one in zip(paths, pixels, strict=True):
        Image.fromarray(one).save(path)
    images = array_images(pixels.transpose(0, 3, 1, 2).copy(), torch.zeros(10))
    expected = seen.predict_proba(pixels)
    for form in (paths, [Image.open(path) for path in paths], torch.from_numpy(pixels), images):
        np.testing.assert_allclose(seen.predict_proba(form), expected, atol=1e-6)


def test_labels_may_come_with_the_images(backbone, pictures):
    pixels, _ = pictures(range(3), 4)
    images = array_images(pixels.transpose(0, 3, 1, 2).copy(), torch.arange(3).repeat_interleave(4))
    model = Masil(backbone, concepts=4, crops=0, alpha=0.3, device="cpu").fit(images)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.score(images) == 1


def test_other_sizes_and_modes_are_framed(seen, pictures):
    pixels, labels = pictures(range(5), 1, seed=3)
    odd = [Image.fromarray(one).resize((50, 41)).convert("RGBA") for one in pixels]
    assert (seen.predict(odd) == labels).mean() > 0.7
    assert len(seen.predict([Image.fromarray(pixels[0]).convert("L")])) == 1


def test_one_image_has_the_activations_it_has_among_many(backbone, pictures):
    encoder = Encoder(backbone, "cpu")
    images = encoder.read(pictures(range(5), 8)[0])
    together = encoder.activations(images)
    alone = torch.cat([encoder.activations(images.subset([at])) for at in range(len(images))])
    torch.testing.assert_close(alone, together)
    expected = extract(backbone, images, engine="torch", device="cpu")
    torch.testing.assert_close(expected, together, atol=1e-5, rtol=1e-4)


def test_crops_come_image_by_image(backbone, seen, pictures):
    encoder = Encoder(backbone, "cpu")
    images = encoder.read(pictures(range(5), 1)[0])
    rows = encoder.crops(images, 4, 32, seed=0)  # a crop as large as the image is the image
    torch.testing.assert_close(rows, encoder.activations(images).repeat_interleave(4, 0))
    small = encoder.crops(images, 4, None, seed=0)
    assert torch.equal(small, encoder.crops(images, 4, 18, seed=0))  # the paper's 18 of 32
    assert not torch.allclose(small[0], small[1])
    assert encoder.crops(images, 0, None, seed=0) is None
    assert Encoder(None).crops(torch.ones(2, 3), 4, None, seed=0) is None
    assert seen.base_.bank.record.rows == 30 * 3  # the bank is made of them


def test_an_explanation_shows_where(seen, pictures):
    pixels, _ = pictures(range(1), 1, seed=3)
    told = seen.explain(pixels[0], count=2)
    assert told.heat.shape == (len(told.concepts), 32, 32)
    assert bool((told.heat >= 0).all())
    for form in (pixels, Image.fromarray(pixels[0]), [Image.fromarray(pixels[0])]):
        assert seen.explain(form).label == told.label
    with pytest.raises(InputError, match="but 2 were given"):
        seen.explain(np.concatenate([pixels, pixels]))


def test_an_open_engine_is_neither_copied_nor_pickled(seen, pictures):
    pixels, _ = pictures(range(5), 1)
    twin = copy.deepcopy(seen)
    assert torch.equal(twin.memory_.vectors, seen.memory_.vectors)
    np.testing.assert_allclose(twin.predict_proba(pixels), seen.predict_proba(pixels), atol=1e-5)


def test_a_broken_image_and_a_broken_backbone_are_named(seen, tmp_path, pictures, backbone):
    (tmp_path / "owl.jpg").write_bytes(b"\xff\xd8\xffnothing")
    with pytest.raises(DataError, match="owl.jpg"):
        seen.predict([tmp_path / "owl.jpg"])
    with pytest.raises(InputError, match="Image 0 has pixels that are infinite or not a number"):
        seen.predict(np.full((1, 32, 32, 3), np.nan))
    broken = create("resnet20", seed=1, framing=backbone.framing)
    next(broken.parameters()).data.fill_(torch.nan)
    with pytest.raises(InputError, match=r"activations of image 'array\[0\]' are not all finite and >= 0"):
        Masil(broken, device="cpu", crops=0).fit(*pictures(range(3), 2))


def test_the_default_backbone_is_named_and_not_stored(tmp_path, pictures):
    pixels, labels = pictures(range(3), 3)
    model = Masil(concepts=4, crops=1, device="cpu").fit(pixels, labels)
    assert model.score(pixels, labels) == 1
    model.save(tmp_path / "m.masil")
    assert (tmp_path / "m.masil").stat().st_size < 9e6  # the whitening matrix and little else
    again = Masil.load(tmp_path / "m.masil", device="cpu")
    assert torch.equal(again.memory_.vectors, model.memory_.vectors)
    np.testing.assert_allclose(again.predict_proba(pixels), model.predict_proba(pixels), atol=1e-5)
    assert again.backbone == "efficientnet_lite0"


@pytest.mark.parametrize("projected", [True, False])
def test_a_trained_base_session_comes_in_with_its_frame(backbone, projected, pictures):
    projection = Projection(backbone.features, 8, hidden=()) if projected else None
    frame = simplex_etf(3, 8 if projected else backbone.features, torch.Generator().manual_seed(0))
    recipe = next(iter(RECIPES.values()))
    trained = Trained(backbone, frame, projection, history=(), recipe=recipe, names=("k0", "k1", "k2"))
    model = Masil.from_trained(trained, concepts=4, alpha=0.3, device="cpu").fit(*pictures(range(3), 4))
    assert model.base_.framed is projected
    assert model.base_.power == (1.0 if projected else 0.5)
    means = torch.nn.functional.normalize(model.memory_.means)
    torch.testing.assert_close(model.memory_.vectors, frame if projected else means)
    assert len(model.learn(*pictures(range(3, 5), 2)).classes_) == 5
