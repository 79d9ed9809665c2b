"""Drawings of explanations: what is shown where, and names of any kind."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from masil.errors import InputError
from masil.learner import Answer, Crop, Explanation, Ranked, draw_explanation
from masil.learner.picture import GAP, PAPER, TILE, lead_in_words, overlay


@pytest.fixture
def explanation(pixels):
    heat = torch.zeros(2, 32, 32)
    heat[0, :16], heat[1, :, 16:] = 2.0, 0.5
    shares = torch.tensor([0.0, 0.2, -0.05, 0.1])
    answer = Answer((Ranked("wren", 0.63), Ranked("crow", 0.2)), known=None, unknown=None)
    return Explanation(
        "wren", "crow", 0.28, shares, rest=0.05, offset=-0.02, coefficients=shares.clamp_min(0), concepts=(1, 3),
        answer=answer, heat=heat, pixels=pixels,
    )  # fmt: skip


@pytest.fixture
def pixels():
    return torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_one_tile_for_the_photo_and_one_for_each_concept(explanation, pixels):
    picture = draw_explanation(explanation)
    assert picture.width == GAP + 3 * (TILE + GAP)
    photo = Image.fromarray(pixels.permute(1, 2, 0).numpy()).resize((TILE, TILE), Image.Resampling.LANCZOS)
    array = np.asarray(picture)
    top = next(y for y in range(picture.height) if (array[y : y + TILE, GAP : GAP + TILE] == np.asarray(photo)).all())
    for place in range(2):
        left = GAP + (place + 1) * (TILE + GAP)
        tile = array[top : top + TILE, left : left + TILE]
        np.testing.assert_array_equal(tile, np.asarray(overlay(photo, explanation.heat[place])))
    assert lead_in_words(explanation) == (
        "lead +0.280  =  concepts for it +0.300   concepts against it -0.050   what no concept explains +0.050   "
        "balance -0.020"
    )


def test_heat_keeps_colours_and_the_rest_is_grey():
    photo = Image.new("RGB", (20, 20), (20, 200, 60))
    heat = torch.zeros(20, 20)
    heat[:, 10:] = 3.0
    found = np.asarray(overlay(photo, heat)).astype(int)
    assert np.ptp(found[:, :8], axis=2).max() == 0
    assert np.ptp(found[:, 12:], axis=2).min() > 50
    np.testing.assert_array_equal(np.asarray(overlay(photo, torch.zeros(20, 20))), np.asarray(overlay(photo, -heat)))


def test_crops_make_room(explanation, pixels):
    crops = [[Crop("a.png", (0, 0, 9), 1.0, pixels[:, :9, :9])] * 3, []]
    with_crops, without = draw_explanation(explanation, crops=crops), draw_explanation(explanation)
    assert with_crops.height > without.height
    with pytest.raises(InputError, match="There are crops of 1 concepts, but 2 are explained"):
        draw_explanation(explanation, crops=crops[:1])


@pytest.mark.parametrize("name", ["x" * 300, "🐦 wren", "two\nlines", "Zaunkönig", "鷦鷯"])
def test_any_name_stays_on_the_page(explanation, pixels, name):
    picture = draw_explanation(replace(explanation, label=name, runner_up=name))
    margin = np.asarray(picture)[:, -GAP:]
    assert (margin == PAPER).all()


def test_a_single_class_and_no_concept(explanation, pixels):
    lonely = replace(explanation, runner_up=None, concepts=(), heat=torch.zeros(0, 32, 32))
    assert draw_explanation(lonely).width == GAP + 2 * (TILE + GAP)
    with pytest.raises(InputError, match="This explanation has no heat maps: it is of activations"):
        draw_explanation(replace(explanation, heat=None))
