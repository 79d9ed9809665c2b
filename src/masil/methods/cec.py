"""CEC: class means look at each other and at the image before they answer (Zhang et al. 2021).

A graph attention layer, trained on base classes in episodes that imitate sessions, adapts all class means and the image
to one another.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.method import Keeps, Method, Queries, Samples, Task, state

EPISODES, RATE = 100, 1e-4  # the rate chosen on base classes of CUB-200 that were given as few-shot ones
QUERIES = 2  # images of a class that are asked about in an episode
BLOCK = 2048  # rows predicted at a time


@final
class Attention:
    """Nodes x ← x + softmax((x Q)(x K)ᵀ) x V: k class means and one image are the nodes of every graph.

    Only the image's node differs between graphs. Let β_i be the attention that class i pays to the image; then class i
    becomes p_i + (1 − β_i) F_i + β_i x V, F_i what it would have got from the classes alone, and the cosines of all n
    graphs are a few products of [n k] matrices.
    """

    def __init__(self, d: int, scale: float) -> None:
        """Start as the identity: V = 0."""
        self.Q = scale**0.5 * torch.eye(d)
        self.K = scale**0.5 * torch.eye(d)
        self.V = torch.zeros(d, d)

    def cosines(self, x: Tensor, means: Tensor) -> Tensor:
        """Give the cosine of each image [n d] to each class [k d] after they have looked at each other, [n k]."""
        values, key = x @ self.V, x @ self.K
        among = (means @ self.Q) @ (means @ self.K).T  # [k k]
        F = torch.softmax(among, 1) @ (means @ self.V)
        beta = torch.sigmoid(key @ (means @ self.Q).T - torch.logsumexp(among, 1))  # [n k]
        query = x @ self.Q
        looks = torch.softmax(torch.cat([query @ (means @ self.K).T, (query * key).sum(1, keepdim=True)], 1), 1)
        z = functional.normalize(x + looks[:, :-1] @ (means @ self.V) + looks[:, -1:] * values)
        # p_i + (1 − β) F_i + β v = S_i + β (v − F_i) with S = p + F
        S, rest = means + F, (z * values).sum(1, keepdim=True) - z @ F.T
        difference = values.square().sum(1, keepdim=True) - 2 * values @ F.T + F.square().sum(1)  # ‖v − F_i‖²
        across = values @ S.T - (S * F).sum(1)  # S_i · (v − F_i)
        square = S.square().sum(1) + 2 * beta * across + beta.square() * difference
        return (z @ S.T + beta * rest) / square.clamp_min(1e-12).sqrt()


@final
@dataclass(kw_only=True)
class Cec(Method):
    """Compare an image with class means after graph attention; means are the only thing a session adds."""

    name = "cec"
    title = "CEC"
    citation = "Zhang et al., Few-Shot Incremental Learning with Continually Evolved Classifiers, CVPR 2021"

    differs = (
        "The original rotates images to make the new classes of 5,000 episodes, fifteen beside fifteen, one shot each; "
        "activations cannot be rotated, so some base classes are known by few shots, in 100 episodes. One head, no "
        "layer norm, no dropout."
    )
    keeps = Keeps.MEANS | Keeps.WEIGHTS

    scale: float = 16.0
    shots: int = 5
    centre: Tensor = state()  # [d]
    attention: Attention = state()
    means: Tensor = state()  # [k d], unit length

    def fit(self, base: Samples, task: Task) -> None:
        """Train the attention by Adam on episodes: a third of the classes, drawn anew, are known by few shots."""
        labels = base.labels
        generator = torch.Generator().manual_seed(task.seed)
        self.centre = functional.normalize(base.activations.float()).mean(0)
        x = self._prepared(base.activations)
        means = functional.normalize(class_means(x, labels))
        attention = Attention(x.shape[1], self.scale)
        learnt = [matrix.requires_grad_() for matrix in (attention.Q, attention.K, attention.V)]
        optimiser = torch.optim.Adam(learnt, RATE)
        rows_of = [(labels == label).nonzero()[:, 0] for label in range(len(means))]
        for _ in range(EPISODES):
            support, queries = means.clone(), []
            novel = set(torch.randperm(len(means), generator=generator)[: max(1, len(means) // 3)].tolist())
            for label, rows in enumerate(rows_of):
                drawn = rows[torch.randperm(len(rows), generator=generator)[: QUERIES + self.shots]]
                if label in novel and len(drawn) > QUERIES:
                    support[label] = functional.normalize(x[drawn[QUERIES:]].mean(0), dim=0)
                queries.append(drawn[:QUERIES])
            asked = torch.cat(queries)
            loss = functional.cross_entropy(self.scale * attention.cosines(x[asked], support), labels[asked])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        for matrix in learnt:
            matrix.requires_grad_(False)
        self.attention, self.means = attention, means

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes."""
        added = class_means(self._prepared(shots.activations), shots.labels, len(self.means))
        self.means = torch.cat([self.means, functional.normalize(added)])

    def predict(self, queries: Queries) -> Tensor:
        """Give the class with the largest cosine after attention."""
        blocks = torch.split(self._prepared(queries.activations), BLOCK)
        return torch.cat([self.attention.cosines(rows, self.means).argmax(1) for rows in blocks])

    def _prepared(self, activations: Tensor) -> Tensor:
        return functional.normalize(functional.normalize(activations.float()) - self.centre)
