"""LIMIT: class rows from many and from few images are calibrated together, learnt on fake sessions (Zhou et al. 2022).

A fake session takes some base classes for new ones: a shot of each replaces its row. Attention with layer norm then
looks at all rows and at the image, so that rows of both kinds come to one scale.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Self, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.attention import AttendedMeans, Calibration
from masil.methods.episodes import EpisodeSampler
from masil.methods.method import Published, Samples, Task
from masil.protocol import Protocol
from masil.training import CosineLoss, Recipe, minimise_by_sgd, soft_labels

BATCH = 128


@final
@dataclass(eq=False, kw_only=True)
class LimitLoss(CosineLoss):
    """Cross-entropy of cosines, and that of calibrated logits in a fake session that every batch holds.

    Of up to `fake` classes that the batch has twice, one image replaces the class's vector; all others are asked about.
    """

    name: ClassVar[str] = "limit"
    fake: int = 16
    calibration: Calibration = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.needs_whole_batch = True  # type: ignore[misc]

    def build(self, features: int, classes: int, generator: torch.Generator) -> Self:
        """Draw the class vectors; the attention begins as the identity."""
        super().build(features, classes, generator)
        self.calibration = Calibration(features, self.scale).to(generator.device)
        return self

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the sum of both."""
        loss = super().forward(activations, labels, partners, lam)
        assert self.vectors is not None
        shots = first_of_repeated(labels, self.fake)
        if not len(shots):
            return loss
        unit = functional.normalize(activations)
        rows = functional.normalize(self.vectors).index_copy(0, labels[shots], unit[shots])
        asked = torch.ones_like(labels, dtype=torch.bool).index_fill(0, shots, False)
        shares = soft_labels(labels, partners, lam, len(rows))[asked]
        return loss + functional.cross_entropy(self.calibration(unit[asked], rows), shares)


@final
@dataclass(kw_only=True)
class Limit(AttendedMeans):
    """Calibrate class means and the image by attention trained on fake sessions; a session adds means alone."""

    name = "limit"
    title = "LIMIT"
    citation = (
        "Zhou et al., Few-Shot Class-Incremental Learning by Sampling Multi-Phase Tasks, "
        "IEEE Transactions on Pattern Analysis and Machine Intelligence, 2022"
    )
    differs = (
        "Every fake session draws its own classes and calibrates the image once, as in the paper; the released code "
        "repeats one session and calibrates the image 32 times. Attention begins as the identity, values and output "
        "in one matrix, no dropout. On a shared backbone the attention alone is trained (head only)."
    )
    counts = ("shots",)
    head_only = True
    published: ClassVar[Published] = {
        "miniimagenet": {"scale": 2.0, "raw_query": True},
        "cub200": {"scale": 1 / 16, "raw_query": True},
    }

    scale: float = 16.0
    raw_query: bool = False
    fake: int = 16  # classes of a fake session, at most half of the base classes
    shots: int = 1
    tasks: int = 1  # fake sessions a step
    epochs: int = 5
    lr: float = 0.5  # of .1, 1 and 3 on base classes of characters that play new ones, 1 is best and 3 diverges

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Train the backbone on fake sessions too; the attention is then learnt anew on its activations."""
        return usual.trained_by(self.name, LimitLoss(fake=self.fake))

    def fit(self, base: Samples, task: Task) -> None:
        """Train the calibration on fake sessions, all base images being asked about."""
        self.find_centre(base, centred=not task.adapted)
        x, labels, means = self.prepared(base.activations), base.labels, self.unit_means(base)
        generator = task.generator()
        sampler = EpisodeSampler(labels, generator)
        fake = min(self.fake, len(means) // 2)
        layer = Calibration(x.shape[1], self.scale, raw_query=self.raw_query)

        def loss(asked: Tensor) -> Tensor:
            losses = []
            for _ in range(self.tasks):
                episode = sampler.draw(sampler.choose(fake), self.shots)
                rows = means.index_copy(0, episode.classes, functional.normalize(episode.means(x)))
                others = asked[~torch.isin(asked, episode.shots)]
                losses.append(functional.cross_entropy(layer(x[others], rows), labels[others]))
            return torch.stack(losses).mean()

        steps = self.epochs * -(-len(labels) // BATCH)
        if fake and self.tasks:
            minimise_by_sgd(
                layer.parameters(), loss, len(labels), steps=steps, batch=BATCH, rate=self.lr, generator=generator
            )
        self.calibration, self.means = layer.requires_grad_(False), means


def first_of_repeated(labels: Tensor, most: int) -> Tensor:
    """Give the position of the first image of each class that comes twice or more, of at most so many classes."""
    same = labels[:, None] == labels
    first = ~same.tril(-1).any(1) & same.triu(1).any(1)
    return first.nonzero()[:most, 0]
