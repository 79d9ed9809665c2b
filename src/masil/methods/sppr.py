"""SPPR: prototypes are refined together, learnt while random base classes play new ones (Zhu et al. 2021).

In every step some base classes lose their learnt prototype and get the mean of a few shots instead. Attention refines
all prototypes; a learnt relation scores pairs of image and prototype.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.collapse import drawn_linear
from masil.methods.episodes import EpisodeSampler
from masil.methods.method import Centred, Keeps, LargestScore, Published, Queries, Samples, Task, state
from masil.training import minimise_by_sgd

HIDDEN, SPARE = 64, 3  # features of the relation; classes of a step that play new in some of its tasks only
BATCH = 128
BLOCK = 512  # rows predicted at a time

Products = tuple[Tensor, Tensor, Tensor, Tensor]  # rows [m d], and they times Q, K and V


@final
class Refinement(nn.Module):
    """C ← C + softmax((C Q)([C; R] K)ᵀ/√d) [C; R] V, R being rows that are known from the base session, others 0."""

    def __init__(self, d: int, generator: torch.Generator) -> None:
        super().__init__()
        spread = (2 / (2 * d)) ** 0.5
        self.Q, self.K = (nn.Parameter(spread * torch.randn(d, d, generator=generator)) for _ in range(2))
        self.V = nn.Parameter(torch.zeros(d, d))  # values and output layer in one

    def forward(self, prototypes: Tensor, known: Tensor) -> Tensor:
        """Refine prototypes [k d]."""
        k, everything = len(prototypes), self.products(torch.cat([prototypes, known]))
        return refined(everything, torch.arange(k), torch.arange(k, k + len(known)), torch.ones(len(known)))

    def products(self, rows: Tensor) -> Products:
        """Give rows and their products with Q, K and V, which every task that chooses among them needs."""
        return rows, rows @ self.Q, rows @ self.K, rows @ self.V


def refined(products: Products, chosen: Tensor, known: Tensor, weights: Tensor) -> Tensor:
    """Refine the rows `chosen`; what they look at are themselves and the rows `known`, which have a weight each."""
    C, queries, keys, values = products
    keys, values = (torch.cat([part[chosen], weights[:, None] * part[known]]) for part in (keys, values))
    shares = torch.softmax(queries[chosen] @ keys.T / C.shape[1] ** 0.5, 1)
    return C[chosen] + shares @ values


@final
class Relation(nn.Module):
    """The score of an image and a prototype: three layers on both unit vectors side by side.

    The first layer is split in a part for each, so that it runs once for every image and prototype, not for every pair.
    It starts as a layer of their difference: classes that were never trained on are then scored by likeness.
    """

    def __init__(self, d: int, generator: torch.Generator) -> None:
        super().__init__()
        self.image = drawn_linear(d, HIDDEN, True, generator)
        self.prototype = nn.Linear(d, HIDDEN, bias=False, device="meta").to_empty(device="cpu")
        self.prototype.weight.data = -self.image.weight.detach().clone()
        self.second, self.last = drawn_linear(HIDDEN, HIDDEN, True, generator), drawn_linear(HIDDEN, 1, True, generator)
        self.norms = nn.ModuleList([nn.BatchNorm1d(HIDDEN), nn.BatchNorm1d(HIDDEN)])

    def forward(self, x: Tensor, prototypes: Tensor) -> Tensor:
        """Give scores [n k] of images [n d] and prototypes [k d]."""
        first = self.image(functional.normalize(x))[:, None] + self.prototype(functional.normalize(prototypes))
        hidden = torch.relu(self.norms[0](first.flatten(0, 1)))
        hidden = torch.relu(self.norms[1](self.second(hidden)))
        scores: Tensor = self.last(hidden).reshape(len(x), len(prototypes))
        return scores


@final
@dataclass(kw_only=True)
class Sppr(Centred, LargestScore):
    """Score images against prototypes that attention has refined; a session adds the means of its shots.

    The prototypes of a session follow from those of the base session and from all means of shots, never from what was
    refined before.
    """

    name = "sppr"
    title = "SPPR (head only)"
    citation = "Zhu et al., Self-Promoted Prototype Refinement for Few-Shot Class-Incremental Learning, CVPR 2021"
    differs = (
        "The original trains its backbone in the same steps, in 56 epochs or more, with dropout and without momentum; "
        "here there are 20 with. Prototypes start at class means, the relation at the difference of image and "
        "prototype, the attention at 0. The shots of a novel class are those of its session, where the released code "
        "draws new ones in every session."
    )
    counts = ("way", "shots", "tasks")
    keeps = Keeps.MEANS | Keeps.WEIGHTS
    published: ClassVar[Published] = {"cub200": {"refine_base": False}}

    way: int = 5  # classes that play new in a task
    shots: int = 5
    tasks: int = 3
    epochs: int = 20
    lr: float = 0.1
    refine_base: bool = True  # whether sessions refine the base classes' prototypes too
    learnt: Tensor = state()  # [k d], prototypes of the base classes
    means: Tensor = state()  # [novel d], of shots
    refinement: Refinement = state()
    relation: Relation = state()

    def fit(self, base: Samples, task: Task) -> None:
        """Train prototypes, refinement and relation on tasks in which random classes play new ones."""
        generator = task.generator()
        self.find_centre(base, centred=not task.adapted)
        x, labels = self.prepared(base.activations), base.labels
        d = x.shape[1]
        self.learnt, self.means = nn.Parameter(self.unit_means(base)), torch.empty(0, d)
        self.refinement, self.relation = Refinement(d, generator), Relation(d, generator)
        sampler = EpisodeSampler(labels, generator)
        way = min(self.way, len(self.learnt) // 2)

        def loss(asked: Tensor) -> Tensor:
            episode = sampler.draw(sampler.choose(way + SPARE), self.shots)
            shown, losses = functional.normalize(episode.means(x)), []
            products = self.refinement.products(torch.cat([self.learnt, shown]))
            for _ in range(self.tasks):
                new = torch.randperm(len(shown), generator=generator)[:way]
                prototypes = refined(products, *posing_as_new(len(self.learnt), episode.classes[new], new))
                losses.append(functional.cross_entropy(self.relation(x[asked], prototypes), labels[asked]))
            return torch.stack(losses).mean()

        learnt = [self.learnt, *self.refinement.parameters(), *self.relation.parameters()]
        steps = self.epochs * -(-len(labels) // BATCH)
        minimise_by_sgd(learnt, loss, len(labels), steps=steps, batch=BATCH, rate=self.lr, generator=generator)
        self.learnt = self.learnt.detach()
        self.relation.eval()

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes."""
        self.means = torch.cat([self.means, self.unit_means(shots, len(self.learnt) + len(self.means))])

    def prototypes(self) -> Tensor:
        """Refine learnt prototypes and means of shots; before the first session the learnt ones stay as they are."""
        if not len(self.means):
            return self.learnt
        rows = self.refinement(torch.cat([self.learnt, self.means]), self.learnt)
        return rows if self.refine_base else torch.cat([self.learnt, rows[len(self.learnt) :]])

    @torch.no_grad()
    def scores(self, queries: Queries) -> Tensor:
        """Give the relation of each image to each refined prototype."""
        prototypes = self.prototypes()
        blocks = torch.split(self.prepared(queries.activations), BLOCK)
        return torch.cat([self.relation(rows, prototypes) for rows in blocks])


def posing_as_new(k: int, classes: Tensor, new: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Say which rows play in a task, of k learnt prototypes and the means of shots that come after them.

    Those of all k prototypes, means in place of those of the `classes` that play new; the learnt ones; and the learnt
    ones' weights, 0 for these classes.
    """
    everyone = torch.arange(k)
    return everyone.index_copy(0, classes, k + new), everyone, torch.ones(k).index_fill(0, classes, 0.0)
