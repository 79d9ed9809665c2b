import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.cec import Attention


def one_graph(attention: Attention, image: Tensor, means: Tensor) -> Tensor:
    """Attention over k + 1 nodes, written out, and the cosines of the last node to the others."""
    nodes = torch.cat([means, image[None]])
    looks = torch.softmax((nodes @ attention.Q) @ (nodes @ attention.K).T, 1)
    nodes = nodes + looks @ (nodes @ attention.V)
    return functional.cosine_similarity(nodes[-1:], nodes[:-1])


def test_all_graphs_at_once_are_each_graph_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    x, means = torch.randn(6, 5, generator=generator), torch.randn(4, 5, generator=generator)
    attention = Attention(5, 1.0)
    attention.Q, attention.K, attention.V = torch.randn(3, 5, 5, generator=generator).unbind()
    expected = torch.stack([one_graph(attention, image, means) for image in x])
    assert torch.allclose(attention.cosines(x, means), expected, atol=1e-5)


def test_untrained_attention_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    x, means = torch.randn(6, 5, generator=generator), torch.randn(4, 5, generator=generator)
    cosines = functional.normalize(x) @ functional.normalize(means).T
    assert torch.allclose(Attention(5, 16.0).cosines(x, means), cosines, atol=1e-6)
