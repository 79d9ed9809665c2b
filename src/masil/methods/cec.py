"""CEC: class rows look at each other and at the image before they answer (Zhang et al. 2021).

A graph attention layer adapts all class rows and the image to one another. It is trained on base classes in episodes
that imitate sessions: base classes known by a single shot, and as many pseudo-classes, which are the same images turned
by a quarter, a half or three quarters of a circle.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.backbones import ActivationStore
from masil.collapse import class_means
from masil.hardware import resolve_device
from masil.methods.attention import Calibration
from masil.methods.episodes import EpisodeSampler
from masil.methods.method import Keeps, LargestScore, Queries, Samples, Task, centred_units, state
from masil.methods.network import Turned
from masil.protocol import first_of_each
from masil.training import minimise_by_sgd

TURNS = 4  # looks at an image: upright, and turned by one, two or three quarters of a circle
SHARPNESS = 16.0  # of the attention at the start, chosen with the rate below; at 1 a class looks at all others alike
MOST = 100  # images of a class that episodes are drawn from: each has to be looked at four times
BLOCK = 2048  # rows predicted at a time


@dataclass(kw_only=True)
class GraphAttention(LargestScore):
    """Compare an image with class means after graph attention; means are the only thing a session adds."""

    citation = "Zhang et al., Few-Shot Incremental Learning with Continually Evolved Classifiers, CVPR 2021"
    keeps = Keeps.MEANS | Keeps.WEIGHTS

    way: int = 15  # classes of an episode, and as many pseudo-classes
    shots: int = 1
    queries: int = 5
    episodes: int = 500
    lr: float = 0.1  # of .1, .5 and 2 the best on base classes of characters that play novel, frozen ImageNet features
    scale: float = 16.0
    device: torch.device = state()
    centre: Tensor = state()  # [d] of unit activations, 0 where the backbone was trained on the base classes
    calibration: Calibration = state()
    means: Tensor = state()  # [k d], unit length

    @abstractmethod
    def looks(self, base: Samples, task: Task) -> Tensor:
        """Give the activations that episodes are drawn from, [looks n d], those of upright images first."""

    def fit(self, base: Samples, task: Task) -> None:
        """Average each class, and train the attention on episodes of the first images of each."""
        generator = torch.Generator().manual_seed(task.seed)
        self.device = resolve_device(task.device)
        self.centre = functional.normalize(base.activations.float()).mean(0) * (not task.adapted)
        self.means = functional.normalize(class_means(self._prepared(base.activations), base.labels))
        rows = first_of_each(base.labels, MOST)
        images = None if base.images is None else base.images.subset(rows)
        shown = Samples(base.activations[rows], images, labels=base.labels[rows])
        looks, sampler = self.looks(shown, task), EpisodeSampler(shown.labels, generator)
        self.calibration = Calibration(looks.shape[2], self.scale, sharpness=SHARPNESS).to(self.device)

        def loss(_: Tensor) -> Tensor:
            support, asked, places = self.episode(looks, sampler)
            support, asked = (self._prepared(part).to(self.device) for part in (support, asked))
            return functional.cross_entropy(self.calibration(asked, support), places.to(self.device))

        minimise_by_sgd(
            self.calibration.parameters(), loss, 1, steps=self.episodes, batch=1, rate=self.lr, generator=generator
        )

    def episode(self, looks: Tensor, sampler: EpisodeSampler) -> tuple[Tensor, Tensor, Tensor]:
        """Draw an episode: a row for each class [2w d], the images asked about [m d], and the class of each of these.

        Classes w … 2w − 1 are classes 0 … w − 1 turned, each by a turn of its own. Where no image can be turned, they
        are further base classes.
        """
        upright = len(looks) == 1
        drawn = sampler.draw(sampler.choose(self.way * (2 if upright else 1)), self.shots, self.queries)
        if upright:
            return drawn.means(looks[0]), looks[0, drawn.queries], drawn.query_places
        w = len(drawn.classes)
        turns = torch.randint(1, len(looks), (w,), generator=sampler.generator)
        shots, asked = (
            torch.cat([looks[0, rows], looks[turns[places], rows]])
            for rows, places in ((drawn.shots, drawn.shot_places), (drawn.queries, drawn.query_places))
        )
        shot_places, places = (torch.cat([part, part + w]) for part in (drawn.shot_places, drawn.query_places))
        return class_means(shots, shot_places), asked, places

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes."""
        added = class_means(self._prepared(shots.activations), shots.labels, len(self.means))
        self.means = torch.cat([self.means, functional.normalize(added)])

    @torch.no_grad()
    def scores(self, queries: Queries) -> Tensor:
        """Give scaled cosines after attention over the classes seen and the image."""
        blocks = torch.split(self._prepared(queries.activations), BLOCK)
        means = self.means.to(self.device)
        return torch.cat([self.calibration(rows.to(self.device), means).cpu() for rows in blocks])

    def _prepared(self, activations: Tensor) -> Tensor:
        return centred_units(activations, self.centre)


@final
@dataclass(kw_only=True)
class Cec(GraphAttention):
    """Graph attention trained on episodes in which turned images are the new classes."""

    name = "cec"
    title = "CEC"
    differs = (
        "The original also tunes the network, gently, in 5,000 episodes of 15 questions a class, with dropout; here "
        "the attention alone is trained, in 500 of 5, from the identity, values and output in one matrix. Rows have "
        "unit length, centred where the backbone was not trained on the base classes; 100 images of a class at most."
    )
    sees = "images"

    def looks(self, base: Samples, task: Task) -> Tensor:
        """Give the activations of all images in four orientations, each extracted once and stored."""
        assert base.images is not None
        assert task.backbone is not None
        store = ActivationStore()
        turned = [
            store.get(Turned(task.backbone, quarters), base.images, device=task.device) for quarters in range(1, TURNS)
        ]
        return torch.stack([base.activations, *turned])


@final
@dataclass(kw_only=True)
class CecHeadOnly(GraphAttention):
    """The same without turned images: other base classes, known by a single shot, are the new classes."""

    name = "cec-head"
    title = "CEC (head only)"
    differs = (
        "Activations cannot be turned: the new classes of an episode are further base classes, fifteen beside fifteen, "
        "which the backbone may have been trained on. Otherwise as `cec`."
    )

    def looks(self, base: Samples, task: Task) -> Tensor:
        """Give the activations of upright images, all there are."""
        return base.activations[None]
