"""SSFE-Net: what the teacher adds to the base session, and that nothing of it is left afterwards."""

import numpy as np
import pytest
import torch

from masil.backbones import Backbone, create
from masil.data import array_images
from masil.errors import InputError
from masil.methods import Checked, Samples, make
from masil.methods.ssfe import SsfeLoss, Teacher, train_teacher, view
from masil.training import RECIPES, CosineLoss, Recipe, train

ROWS = torch.rand(6, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(3).repeat(2)


def built(loss: CosineLoss) -> CosineLoss:
    return loss.build(8, 3, torch.Generator().manual_seed(0))


def batch() -> tuple[torch.Tensor, ...]:
    return ROWS, LABELS, LABELS, torch.ones(6)


def test_without_a_teachers_share_the_loss_is_the_plain_one() -> None:
    alone = built(SsfeLoss(blend=0.0, distilled=0.0))
    alone.teacher = lambda pixels: torch.rand(len(pixels), 8)
    plain = built(CosineLoss())(*batch())
    torch.testing.assert_close(alone(*batch(), torch.zeros(6, 3, 4, 4)), plain)
    torch.testing.assert_close(built(SsfeLoss())(*batch()), plain)  # no teacher yet


def test_features_are_blended_and_drawn_to_the_teachers_which_has_no_gradient() -> None:
    loss = built(SsfeLoss(blend=0.25, distilled=2.0))
    features = torch.rand(6, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    loss.teacher = lambda _: 1 * features
    mine = ROWS.clone().requires_grad_()
    value = loss(mine, *batch()[1:], torch.zeros(6, 3, 4, 4))
    shares, log_shares = features.softmax(1), features.log_softmax(1)
    apart = (shares * (log_shares - ROWS.log_softmax(1))).sum(1).mean()
    expected = built(CosineLoss())(0.25 * features + 0.75 * ROWS, *batch()[1:]) + 2 * apart
    torch.testing.assert_close(value, expected)
    value.backward()
    assert mine.grad is not None
    assert features.grad is None


@pytest.fixture
def network() -> Backbone:
    return create("resnet20", weights=None, width=0.5, framing=(8, 8)).eval()


@pytest.mark.usefixtures("one_thread")
def test_the_teacher_learns_to_tell_that_two_views_are_of_one_image(network: Backbone) -> None:
    pixels = torch.randint(256, (40, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(4).repeat(10)
    torch.manual_seed(0)
    teacher = Teacher(network)
    start = network.fingerprint()

    def loss() -> float:
        views = [network.preprocess(view(pixels, 8, torch.Generator().manual_seed(seed))) for seed in (1, 2)]
        with torch.no_grad():
            return float(teacher.train()(*views))

    before = loss()
    train_teacher(teacher, pixels, labels, side=8, episodes=25, generator=torch.Generator().manual_seed(0))
    assert not teacher.training
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert loss() < before - 0.2
    assert network.fingerprint() == start


def test_views_keep_their_size_and_differ() -> None:
    pixels = torch.randint(256, (4, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    first, second = (view(pixels, 8, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert first.shape == (4, 3, 8, 8)
    assert 0 <= float(first.min()) <= float(first.max()) <= 1 + 1e-6
    assert not torch.equal(first, second)
    flat = view(torch.full((2, 3, 8, 8), 128, dtype=torch.uint8), 8, torch.Generator().manual_seed(0))
    torch.testing.assert_close(flat, flat.mean((2, 3), keepdim=True).expand_as(flat))  # blurring a plain image


@pytest.mark.usefixtures("one_thread")
def test_a_base_session_has_the_teacher_and_keeps_nothing_of_it(tmp_path) -> None:
    recipe: Recipe = make("ssfe-net", episodes=2).base_session(RECIPES["characters-fast"], None)
    small = Recipe.from_json(recipe.to_json() | {"stages": [[1, 8]], "framing": [8, 8], "backbone": "resnet20"})
    pixels = np.random.default_rng(0).integers(0, 255, (24, 3, 8, 8)).astype(np.uint8)
    trained = train(array_images(pixels, torch.arange(4).repeat(6)), small, tmp_path, device="cpu")
    assert trained.recipe.loss["name"] == "ssfe"
    assert trained.projection is None
    again = train(array_images(pixels, torch.arange(4).repeat(6)), small, tmp_path, device="cpu")
    assert again.backbone.fingerprint() == trained.backbone.fingerprint()


def test_a_shared_backbone_is_refused(task) -> None:
    rows = Samples(torch.rand(8, 4), labels=torch.arange(4).repeat(2))
    with pytest.raises(InputError, match="'ssfe-net' is a way to train the base session; on a shared backbone nothing"):
        Checked(make("ssfe-net")).fit(rows, task(4))
    Checked(make("ssfe-net")).fit(rows, task(4, own=True))
