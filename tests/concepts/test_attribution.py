import pytest
import torch
from torch import Tensor, nn

from masil.backbones import Backbone
from masil.concepts import HeatMaps, gradient_importance, gradient_maps, location_maps, nnls
from masil.data import Framing
from masil.errors import InputError

SIDE = 32
PATTERN = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]])  # a 4 × 4 chequerboard


class Planted(Backbone):
    """Two filters, each followed by a ReLU: one sees the chequerboard, one a plain bright patch."""

    def __init__(self) -> None:
        super().__init__("planted", 2, Framing(SIDE, SIDE), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        self.filters = nn.Conv2d(3, 2, 4, stride=2, bias=False)
        chequer = 2 * PATTERN - 1
        with torch.no_grad():
            self.filters.weight.copy_(torch.stack([chequer, torch.ones(4, 4)])[:, None].expand(2, 3, 4, 4) / 48)
        self.norm = nn.BatchNorm2d(2)  # its training mode would mix the images

    def maps(self, x: Tensor) -> Tensor:
        return self.norm(self.filters(x)).relu()


def planted(*corners: tuple[int, int]) -> Tensor:
    """Grey images, each with the pattern in an 8 × 8 patch at its corner."""
    images = torch.full((len(corners), 3, SIDE, SIDE), 128, dtype=torch.uint8)
    for image, (top, left) in zip(images, corners, strict=True):
        image[:, top : top + 8, left : left + 8] = (PATTERN.repeat(2, 2) * 255).to(torch.uint8)
    return images


CONCEPTS = torch.tensor([[1.0, 0.0], [0.6, 0.8]])


def coefficient(concept: int):
    return lambda a: nnls(a, CONCEPTS.to(a)).coefficients[:, concept]


def share_inside(maps: HeatMaps, corner: tuple[int, int], index: int, margin: int = 3) -> float:
    heat = maps.heat[index].clamp_min(0)
    top, left = (max(0, c - margin) for c in corner)
    return float(heat[top : corner[0] + 8 + margin, left : corner[1] + 8 + margin].sum() / heat.sum())


@pytest.mark.parametrize("make", [gradient_maps, location_maps])
def test_heat_lies_where_the_pattern_is(make) -> None:
    corners = [(4, 4), (20, 8), (12, 22)]
    maps = make(Planted(), planted(*corners), coefficient(0))
    assert maps.heat.shape == (3, SIDE, SIDE)
    assert bool((maps.scores > 0).all())
    for i, corner in enumerate(corners):
        assert share_inside(maps, corner, i) > 0.9
        peak = int(maps.heat[i].argmax())
        assert corner[0] <= peak // SIDE < corner[0] + 8
        assert corner[1] <= peak % SIDE < corner[1] + 8


@pytest.mark.parametrize("make", [gradient_maps, location_maps])
def test_any_score_of_activations_may_be_explained(make) -> None:
    class_vector = torch.tensor([1.0, -0.5])
    maps = make(Planted(), planted((8, 8)), lambda a: nnls(a, CONCEPTS).coefficients @ CONCEPTS @ class_vector)
    assert share_inside(maps, (8, 8), 0) > 0.9


def test_the_raw_map_is_gradient_times_input_by_finite_differences() -> None:
    backbone = Planted().double()
    pixels = torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    raw = gradient_maps(backbone, pixels, coefficient(1), samples=1, blur=0)
    backbone.eval()
    x = backbone.preprocess(pixels)
    torch.testing.assert_close(raw.scores, coefficient(1)(backbone(x)).detach())
    for top, left in [(0, 0), (5, 9), (16, 16), (31, 31), (12, 3)]:
        expected = 0.0
        for c in range(3):
            step = torch.zeros_like(x)
            step[0, c, top, left] = 1e-6
            ahead, behind = (float(coefficient(1)(backbone(x + s).detach())) for s in (step, -step))
            expected += (ahead - behind) / 2e-6 * float(x[0, c, top, left])
        assert float(raw.heat[0, top, left]) == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_maps_are_deterministic_and_the_seed_moves_the_noise() -> None:
    images = planted((4, 4), (16, 16))
    first, same, other = (gradient_maps(Planted(), images, coefficient(0), seed=s).heat for s in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(*(location_maps(Planted(), images, coefficient(0)).heat for _ in range(2)))
    with torch.no_grad():  # where gradients are off
        assert torch.equal(gradient_maps(Planted(), images, coefficient(0), seed=1).heat, first)
    assert not first.requires_grad


def test_images_do_not_see_each_other_and_the_backbone_stays_as_it_was() -> None:
    backbone = Planted()
    backbone.train()
    backbone.norm.eval()
    kept = {name: value.clone() for name, value in backbone.state_dict().items()}
    both = gradient_maps(backbone, planted((4, 4), (16, 16)), coefficient(0), samples=1).heat
    alone = gradient_maps(backbone, planted((16, 16)), coefficient(0), samples=1).heat
    torch.testing.assert_close(both[1:], alone)
    location_maps(backbone, planted((4, 4)), coefficient(0))
    assert backbone.training
    assert not backbone.norm.training
    assert all(torch.equal(value, kept[name]) for name, value in backbone.state_dict().items())
    assert all(p.grad is None for p in backbone.parameters())


def test_blur_spreads_heat_without_changing_its_sum_away_from_the_border() -> None:
    sharp = gradient_maps(Planted(), planted((12, 12)), coefficient(0), samples=1, blur=0)
    soft = gradient_maps(Planted(), planted((12, 12)), coefficient(0), samples=1, blur=1.5)
    assert float(soft.heat.sum()) == pytest.approx(float(sharp.heat.sum()), rel=0.01)
    assert float(soft.heat.max()) < float(sharp.heat.max())


def test_location_maps_keep_the_values_at_the_positions() -> None:
    backbone, images = Planted().eval(), planted((8, 8))
    with torch.no_grad():
        places = backbone.maps(backbone.preprocess(images))[0].flatten(1).T
    expected = nnls(places, CONCEPTS).coefficients[:, 0]
    heat = location_maps(backbone, images, coefficient(0)).heat
    assert float(heat.max()) <= float(expected.max()) + 1e-6
    assert float(heat.mean()) == pytest.approx(float(expected.mean()), rel=0.15)


def test_bad_input_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"target of 1 activations must be \[1\] scores, but is \[1, 2\]; does it"):
        gradient_maps(Planted(), planted((4, 4)), lambda a: a)
    with pytest.raises(InputError, match="needs samples >= 1, noise >= 0, blur >= 0, not 0, 0.1, None"):
        gradient_maps(Planted(), planted((4, 4)), coefficient(0), samples=0)
    with pytest.raises(InputError, match=r"Pixels must have the shape \[n 3 h w\]"):
        location_maps(Planted(), torch.rand(3, 8, 8), coefficient(0))


def test_gradient_importances_of_a_linear_score_sum_to_it() -> None:
    generator = torch.Generator().manual_seed(0)
    p, w = torch.rand(5, 4, generator=generator), torch.randn(4, generator=generator)
    kept = p.clone()
    with torch.no_grad():
        found = gradient_importance(lambda c: c @ w, p)
    torch.testing.assert_close(found, kept * w)
    torch.testing.assert_close(found.sum(1), kept @ w)
    gradient_importance(lambda c: c @ w, p.requires_grad_())
    assert torch.equal(p.detach(), kept)  # coefficients stay as they are
    assert p.grad is None


def test_gradient_importance_agrees_with_finite_differences() -> None:
    p = torch.rand(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def score(c: Tensor) -> Tensor:
        return (c[:, 0] * c[:, 1]).sin() + c[:, 2].exp() * c[:, 3]

    step = 1e-6 * torch.eye(4, dtype=torch.float64)
    expected = torch.stack([(score(p + s) - score(p - s)) / 2e-6 for s in step], 1) * p
    torch.testing.assert_close(gradient_importance(score, p), expected, rtol=1e-6, atol=1e-8)


def test_a_score_that_is_none_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"score of coefficients \[2, 3\] must be \[2\], but is \[2, 3\]; does it"):
        gradient_importance(lambda c: c, torch.rand(2, 3))
    with pytest.raises(InputError, match=r"Coefficients must be floating-point \[n v\], but are torch.int64 \[2, 3\]"):
        gradient_importance(lambda c: c.sum(1), torch.ones(2, 3, dtype=torch.int64))
