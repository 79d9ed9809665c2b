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
from masil.methods.attention import AttendedMeans, Calibration
from masil.methods.cuts import Turned
from masil.methods.episodes import EpisodeSampler
from masil.methods.method import Samples, Task
from masil.protocol import first_of_each
from masil.training import minimise_by_sgd

TURNS = 4  # looks at an image: upright, and turned by one, two or three quarters of a circle
SHARPNESS = 16.0  # of the attention at the start, chosen with the rate below; at 1 a class looks at all others alike
MOST = 100  # images of a class that episodes are drawn from: each has to be looked at four times


@dataclass(kw_only=True)
class GraphAttention(AttendedMeans):
    """Compare an image with class means after graph attention, which is trained on episodes."""

    citation = "Zhang et al., Few-Shot Incremental Learning with Continually Evolved Classifiers, CVPR 2021"

    way: int = 15  # classes of an episode, and as many pseudo-classes
    shots: int = 1
    queries: int = 5
    episodes: int = 500
    lr: float = 0.1  # of .1, .5 and 2 the best on base classes of characters that play novel, frozen ImageNet features
    scale: float = 16.0

    @abstractmethod
    def looks(self, base: Samples, task: Task) -> Tensor:
        """Give the activations that episodes are drawn from, [looks n d], those of upright images first."""

    def fit(self, base: Samples, task: Task) -> None:
        """Average each class, and train the attention on episodes of the first images of each."""
        generator, device = task.generator(), resolve_device(task.device)
        self.find_centre(base, centred=not task.adapted)
        self.means = self.unit_means(base)
        few = base.some(first_of_each(base.labels, MOST))
        looks, sampler = self.looks(few, task), EpisodeSampler(few.labels, generator)
        self.calibration = Calibration(looks.shape[2], self.scale, sharpness=SHARPNESS).to(device)

        def loss(_: Tensor) -> Tensor:
            support, asked, places = self.episode(looks, sampler)
            support, asked = (self.prepared(part).to(device) for part in (support, asked))
            return functional.cross_entropy(self.calibration(asked, support), places.to(device))

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
        store, networks = ActivationStore(), [Turned(task.network, quarters) for quarters in range(1, TURNS)]
        turned = [store.get(network, base.shown, device=task.device) for network in networks]
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
