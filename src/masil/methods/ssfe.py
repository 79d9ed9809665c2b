"""SSFE-Net: a self-supervised teacher enriches the features while the base session trains them (Pan et al. 2023)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import Backbone
from masil.data import Augmentation, augment
from masil.methods.class_means import ClassMeans
from masil.methods.descent import take_step
from masil.methods.episodes import EpisodeSampler
from masil.methods.network import fresh_copy
from masil.protocol import Protocol
from masil.training import CosineLoss, Recipe

VIEWS = Augmentation(flip=0.5, brightness=0.4, contrast=0.4, saturation=0.4)
COLOURED = 0.8  # share of the views that keep their colours; the others are grey
WAYS, IMAGES = 5, 10  # an episode's classes, and images of each
RATE, DECAY, FALLS = 0.1, 5e-4, (0.4, 0.8)


@final
@dataclass(eq=False, kw_only=True)
class SsfeLoss(CosineLoss):
    """ℓ(s cos(β t + (1 − β) a, w)) + δ KL(softmax t ‖ softmax a): a are activations, t the teacher's features.

    The teacher has the network's shape. It is trained before the first step by SimSiam, in `episodes` of 5 classes with
    10 images each, and fixed from then on. It is never asked again once the base session is over.
    """

    name: ClassVar[str] = "ssfe"
    needs_pixels: ClassVar[bool] = True

    blend: float = 0.2
    distilled: float = 0.9
    episodes: int = 200
    teacher: Callable[[Tensor], Tensor] | None = field(init=False, default=None, repr=False)  # no part of checkpoints

    def prepare(self, backbone: Backbone, pixels: Tensor, labels: Tensor, side: int) -> None:
        """Train the teacher on the base images; the same one every time, so a resumed run has it again."""
        generator = torch.Generator().manual_seed(0)
        with torch.random.fork_rng(devices=[]):  # layers draw from the global generator when they are built
            torch.manual_seed(0)
            teacher = Teacher(backbone).to(pixels.device)
        train_teacher(teacher, pixels, labels, side=side, episodes=self.episodes, generator=generator)
        self.teacher = teacher.features

    def forward(
        self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor, pixels: Tensor | None = None
    ) -> Tensor:
        """Give the cross-entropy of blended features, and what draws the network to the teacher."""
        if self.teacher is None or pixels is None:
            return super().forward(activations, labels, partners, lam)
        with torch.no_grad():
            features = self.teacher(pixels).to(activations)
        blended = torch.lerp(activations, features, self.blend)
        apart = functional.kl_div(activations.log_softmax(1), features.softmax(1), reduction="batchmean")
        return super().forward(blended, labels, partners, lam) + self.distilled * apart


@final
class Teacher(nn.Module):
    """A network that knows nothing yet, with SimSiam's layers on top of it (Chen and He 2021)."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        d = backbone.features
        self.backbone = fresh_copy(backbone)
        self.converter = nn.Sequential(nn.Linear(d, d), nn.BatchNorm1d(d), nn.ReLU())
        self.projector, self.predictor = (
            nn.Sequential(nn.Linear(d, d // 2), nn.BatchNorm1d(d // 2), nn.ReLU(), nn.Linear(d // 2, d))
            for _ in range(2)
        )

    def features(self, x: Tensor) -> Tensor:
        """Give what enriches a network's activations, [n d] >= 0."""
        features: Tensor = self.converter(self.backbone(x))
        return features

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Give SimSiam's loss of two views of the same images: −½ cos(p₁, z₂) − ½ cos(p₂, z₁), z without gradient."""
        z = self.projector(self.features(torch.cat([first, second])))
        p = self.predictor(z)
        crossed = z.detach().roll(len(first), 0)
        return -functional.cosine_similarity(p, crossed).mean()


@final
@dataclass(kw_only=True)
class SsfeNet(ClassMeans):
    """Train a network with a self-supervised teacher at its side; afterwards the nearest class mean decides."""

    name = "ssfe-net"
    title = "SSFE-Net"
    citation = "Pan et al., SSFE-Net: Self-Supervised Feature Enhancement for Ultra-Fine-Grained FSCIL, WACV 2023"
    differs = (
        "The teacher is a network of the same small shape, trained in 200 episodes, not a ResNet-50 in 5,000. The "
        "divergence is of softmax features; the original's, of raw ones, is none."
    )
    needs_own_base = True

    blend: float = 0.2
    distilled: float = 0.9
    episodes: int = 200

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Train with the teacher."""
        loss = SsfeLoss(blend=self.blend, distilled=self.distilled, episodes=self.episodes)
        return usual.trained_by(self.name, loss)


def train_teacher(
    teacher: Teacher, pixels: Tensor, labels: Tensor, *, side: int, episodes: int, generator: torch.Generator
) -> None:
    """Lower SimSiam's loss of uint8 images [n 3 h w] by SGD, an episode a step; then fix the teacher."""
    optimiser = torch.optim.SGD(teacher.requires_grad_(True).parameters(), RATE, weight_decay=DECAY)
    rates = torch.optim.lr_scheduler.MultiStepLR(optimiser, [int(share * episodes) for share in FALLS], 0.1)
    sampler = EpisodeSampler(labels.cpu(), generator)
    teacher.train()
    for _ in range(episodes):
        episode = sampler.draw(sampler.choose(WAYS), IMAGES)
        images = pixels[episode.shots.to(pixels.device)]
        first, second = (teacher.backbone.preprocess(view(images, side, generator)) for _ in range(2))
        take_step(optimiser, teacher(first, second), rates)
    teacher.eval().requires_grad_(False)


def view(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Vary images: flipped, their colours changed or taken away, blurred by 5 × 5 pixels; float in [0, 1]."""
    x = augment(images, VIEWS, side, generator)
    coloured = (torch.rand(len(x), 1, 1, 1, generator=generator) < COLOURED).to(x.device)
    x = torch.where(coloured, x, x.mean(1, keepdim=True))
    line = torch.exp(-torch.arange(-2.0, 3.0).square() / 2).to(x)
    kernel = torch.outer(line, line) / line.sum().square()
    return functional.conv2d(functional.pad(x, (2, 2, 2, 2), "replicate"), kernel.expand(3, 1, 5, 5), groups=3)
