"""What several methods stand on: attention among class rows, and episodes."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from masil.methods import make
from masil.methods.attention import Attention
from masil.methods.episodes import EpisodeSampler

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
    gain = torch.rand(5, generator=seeded(1))
    graphs = torch.stack([one_graph(attention, image, rows) for image in x])  # [n k+1 d]
    whole = (graphs[:, :-1] - graphs[:, :-1].mean(2, keepdim=True)) * gain
    z, seen = attention.attend(x, rows)
    seen = seen.centred().times(gain)
    torch.testing.assert_close(z, graphs[:, -1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(seen.dot(z), torch.einsum("nd,nkd->nk", z, whole), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(seen.square(), whole.square().sum(2), atol=1e-4, rtol=1e-4)


def test_untrained_attention_changes_nothing(layer: tuple[Attention, Tensor, Tensor]) -> None:
    _, x, rows = layer
    z, seen = Attention(5, 16.0).requires_grad_(False).attend(x, rows)
    torch.testing.assert_close(z, x)
    torch.testing.assert_close(seen.dot(z), x @ rows.T)


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


@pytest.mark.parametrize("name", ["fixed-classifier", "synthesized-features", "regularizer", "cec-head", "limit"])
def test_activations_are_centred_where_the_backbone_was_not_trained_on_the_base_classes(name: str, task, peaks) -> None:
    smaller = {"cec-head": {"episodes": 0}, "limit": {"epochs": 0}, "synthesized-features": {"generator_steps": 0}}
    base = peaks(range(6), 10)
    for adapted in (False, True):
        method = make(name, **smaller.get(name, {}))
        method.fit(base, task(6, adapted=adapted))
        mean = functional.normalize(base.activations).mean(0)
        torch.testing.assert_close(method.centre, torch.zeros_like(mean) if adapted else mean)
