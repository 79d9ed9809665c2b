"""What several methods stand on: attention among class rows, episodes, classes kept as Gaussians."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.attention import Attention
from masil.methods.episodes import EpisodeSampler
from masil.methods.gaussians import ClassGaussians, covariance_factor, mixed_factor

LABELS = torch.arange(6).repeat(9)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def one_graph(attention: Attention, image: Tensor, rows: Tensor) -> Tensor:
    """Attention over k + 1 nodes, written out."""
    nodes = torch.cat([rows, image[None]])
    looks = torch.softmax((nodes @ attention.Q) @ (nodes @ attention.K).T, 1)
    return nodes + looks @ (nodes @ attention.V)


@pytest.fixture
def layer() -> tuple[Attention, Tensor, Tensor]:
    generator = seeded()
    attention = Attention(5, 1.0).requires_grad_(False)
    for weight in attention.parameters():
        weight.copy_(torch.randn(5, 5, generator=generator))
    return attention, torch.randn(6, 5, generator=generator), torch.randn(4, 5, generator=generator)


def test_all_graphs_at_once_are_each_graph_alone(layer: tuple[Attention, Tensor, Tensor]) -> None:
    attention, x, rows = layer
    graphs = torch.stack([one_graph(attention, image, rows) for image in x])  # [n k+1 d]
    expected = functional.cosine_similarity(graphs[:, -1:], graphs[:, :-1], dim=2)
    torch.testing.assert_close(attention.cosines(x, rows), expected, atol=1e-5, rtol=1e-5)


def test_rows_in_parts_are_the_rows(layer: tuple[Attention, Tensor, Tensor]) -> None:
    attention, x, rows = layer
    gain = torch.rand(5, generator=seeded(1))
    graphs = torch.stack([one_graph(attention, image, rows) for image in x])
    whole = (graphs[:, :-1] - graphs[:, :-1].mean(2, keepdim=True)) * gain
    z, seen = attention.attend(x, rows)
    seen = seen.centred().times(gain)
    torch.testing.assert_close(z, graphs[:, -1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(seen.dot(z), torch.einsum("nd,nkd->nk", z, whole), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(seen.square(), whole.square().sum(2), atol=1e-4, rtol=1e-4)


def test_untrained_attention_changes_nothing(layer: tuple[Attention, Tensor, Tensor]) -> None:
    _, x, rows = layer
    cosines = functional.normalize(x) @ functional.normalize(rows).T
    torch.testing.assert_close(Attention(5, 16.0).cosines(x, rows).detach(), cosines, atol=1e-6, rtol=1e-6)


def test_no_image_of_an_episode_is_both_shot_and_question() -> None:
    sampler = EpisodeSampler(LABELS, seeded())
    for _ in range(20):
        classes = sampler.choose(4)
        episode = sampler.draw(classes, 5, 3)
        assert len(set(classes.tolist())) == 4
        assert len({*episode.shots.tolist(), *episode.queries.tolist()}) == 4 * (5 + 3)
        assert torch.equal(LABELS[episode.shots], classes[episode.shot_places])
        assert torch.equal(LABELS[episode.queries], classes[episode.query_places])


def test_a_class_with_few_images_is_asked_about_with_the_last_of_them() -> None:
    sampler = EpisodeSampler(torch.tensor([0, 1, 1, 2, 2, 2, 2, 2, 2, 2]), seeded())
    episode = sampler.draw(torch.tensor([0, 1, 2]), 5, 1)
    assert torch.bincount(episode.shot_places).tolist() == [1, 1, 5]
    assert torch.bincount(episode.query_places, minlength=3).tolist() == [0, 1, 1]


def test_means_of_an_episode_are_those_of_its_shots() -> None:
    rows = torch.randn(len(LABELS), 4, generator=seeded())
    episode = EpisodeSampler(LABELS, seeded()).draw(torch.tensor([3, 1]), 2)
    expected = torch.stack([rows[episode.shots[episode.shot_places == place]].mean(0) for place in (0, 1)])
    torch.testing.assert_close(episode.means(rows), expected)
    assert not len(episode.queries)


def test_factors_give_the_covariances_and_their_mixture() -> None:
    parts = torch.randn(2, 8, 5, generator=seeded(), dtype=torch.float64)
    factors = [covariance_factor(part) for part in parts]
    for part, factor in zip(parts, factors, strict=True):
        torch.testing.assert_close(factor.T @ factor, torch.cov(part.T))
    weights = torch.tensor([0.3, 1.2], dtype=torch.float64)
    mixed = mixed_factor(factors, weights)
    expected = weights[0] * torch.cov(parts[0].T) + weights[1] * torch.cov(parts[1].T)
    torch.testing.assert_close(mixed.T @ mixed, expected)
    assert mixed_factor(factors, weights, rank=2).shape == (2, 5)


def test_drawn_rows_have_the_class_mean_and_covariance() -> None:
    rows = torch.randn(54, 4, generator=seeded()) + 3 * torch.eye(6, 4)[LABELS]
    memory = ClassGaussians.fit(rows, LABELS)
    drawn, labels = memory.sample(20_000, seeded(1), [2, 4])
    for label in (2, 4):
        own = drawn[labels == label]
        spread = memory.factors[label].square().sum(0).max().sqrt()
        # Five standard errors of a mean of 20,000, and of a product of two normal numbers.
        assert float((own.mean(0) - memory.means[label]).abs().max()) < 5 * spread / 20_000**0.5
        error = torch.cov(own.T) - torch.cov(rows[label == LABELS].T)
        assert float(error.abs().max()) < 5 * 2**0.5 * spread**2 / 20_000**0.5


def test_a_class_of_one_row_is_its_row() -> None:
    memory = ClassGaussians.fit(torch.tensor([[1.0, 2.0], [0.0, 1.0], [2.0, 3.0]]), torch.tensor([0, 1, 1]))
    drawn, labels = memory.sample(2, seeded(), [0])
    assert torch.equal(drawn, torch.tensor([[1.0, 2.0]] * 2))
    assert labels.tolist() == [0, 0]
