import torch
from torch.nn import functional

from masil.backbones import Backbone
from masil.methods import Queries, make
from masil.methods.cuts import Turned
from masil.methods.episodes import EpisodeSampler


def test_a_backbone_that_turns_images_is_the_backbone_on_turned_images(backbone: Backbone) -> None:
    pixels = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for quarters in range(1, 5):
            expected = backbone(pixels.rot90(quarters, (2, 3)))
            torch.testing.assert_close(Turned(backbone, quarters)(pixels), expected)
    assert len({Turned(backbone, quarters).fingerprint() for quarters in range(4)} | {backbone.fingerprint()}) == 5


def test_an_episode_asks_about_classes_and_as_many_turned_ones() -> None:
    """Activations that say which image and which turn they are of: a class is turned as a whole, its copy is not it."""
    labels = torch.arange(6).repeat(4)
    looks = torch.stack([torch.stack([torch.arange(24.0), torch.full((24,), float(turn))], 1) for turn in range(4)])
    method = make("cec", way=5, shots=1, queries=2)
    support, asked, places = method.episode(looks, EpisodeSampler(labels, torch.Generator().manual_seed(0)))
    assert support.shape == (10, 2)
    assert places.bincount().tolist() == [2] * 10
    assert torch.equal(support[places, 1], asked[:, 1])
    assert torch.equal(support[:, 1] == 0, torch.arange(10) < 5)
    assert torch.equal(support[5:, 0], support[:5, 0])
    assert torch.equal(labels[asked[:, 0].long()], labels[support[places, 0].long()])
    assert not set(asked[:, 0].tolist()) & set(support[:, 0].tolist())


def test_turned_images_are_looked_at_and_sessions_add_means_alone(images, task, backbone: Backbone) -> None:
    base = images(range(5), 10, 0)
    method = make("cec", episodes=20)
    method.fit(base, task(5, 2, backbone=backbone))
    looks = method.looks(base, task(5, 2, backbone=backbone))
    assert looks.shape == (4, 50, backbone.features)
    assert torch.equal(looks[0], base.activations)
    with torch.no_grad():
        pixels = backbone.preprocess(base.images.load(slice(None), backbone.framing).rot90(1, (2, 3)))
        torch.testing.assert_close(looks[1], backbone(pixels), atol=1e-3, rtol=1e-3)
    before = [weight.clone() for weight in method.calibration.parameters()]
    assert float(before[2].abs().max()) > 0  # the values have left 0
    method.learn(images(range(5, 7), 5, 1))
    assert len(method.means) == 7
    assert all(map(torch.equal, before, method.calibration.parameters()))


def test_before_training_it_is_the_nearest_mean_and_one_image_does_not_change_another(task, peaks) -> None:
    base, tests = peaks(range(6), 10), peaks(range(6), 4, seed=1)
    method = make("cec-head", episodes=0)
    method.fit(base, task(6, adapted=True))
    parts = method.means, functional.normalize(tests.activations)
    rows, x = (functional.normalize(part - part.mean(1, keepdim=True)) for part in parts)
    torch.testing.assert_close(method.scores(tests), 16 * x @ rows.T, atol=1e-3, rtol=1e-3)
    method = make("cec-head", episodes=30)
    method.fit(base, task(6))
    alone = torch.cat([method.scores(Queries(row[None])) for row in tests.activations])
    torch.testing.assert_close(method.scores(tests), alone, atol=1e-4, rtol=1e-4)
