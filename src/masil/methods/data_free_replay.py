"""Data-free Replay: a generator of images that the network is unsure about stands in for old ones (Liu et al. 2022)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.methods.descent import take_step
from masil.methods.method import Keeps, Samples, Task, state
from masil.methods.network import fresh_copy
from masil.methods.stage import StageMethod, StageNetwork

NOISE = 512
STUDENT_RATE, GENERATOR_RATE, STUDENT_STEPS = 0.1, 1e-3, 5
FALLS = (1 / 3, 2 / 3)  # of the rounds, after which both rates fall to a tenth


@final
class ImageGenerator(nn.Module):
    """Noise [n 512] to normalised pixels [n 3 side side]: a linear layer and three convolutions, twice enlarged."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.small = side // 4
        self.start = nn.Linear(NOISE, 64 * self.small**2)
        self.layers = nn.Sequential(
            nn.BatchNorm2d(64), nn.Upsample(scale_factor=2),
            nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.LeakyReLU(0.2), nn.Upsample((side, side)),
            nn.Conv2d(64, 32, 3, padding=1), nn.BatchNorm2d(32), nn.LeakyReLU(0.2),
            nn.Conv2d(32, 3, 3, padding=1), nn.Tanh(), nn.BatchNorm2d(3, affine=False),
        )  # fmt: skip

    def forward(self, noise: Tensor) -> Tensor:
        """Make images."""
        pixels: Tensor = self.layers(self.start(noise).reshape(-1, 64, self.small, self.small))
        return pixels

    def make(self, count: int, generator: torch.Generator) -> Tensor:
        """Make images of noise drawn on the processor."""
        return self.forward(torch.randn(count, NOISE, generator=generator).to(self.start.weight.device))


@final
class Student(nn.Module):
    """A network of the same shape as another, with weights of its own that know nothing."""

    def __init__(self, net: StageNetwork) -> None:
        super().__init__()
        self.backbone = fresh_copy(net.lower.whole)
        self.rows = nn.Parameter(torch.randn_like(net.rows))
        self.scale, self.casting = net.scale, net.casting

    def forward(self, pixels: Tensor) -> Tensor:
        """Give logits."""
        with self.casting():
            activations = self.backbone(pixels).float()
        cosines = functional.normalize(activations) @ functional.normalize(self.rows).T
        return self.scale * cosines


@final
@dataclass(kw_only=True)
class DataFreeReplay(StageMethod):
    """Train shots and generated images, these with the labels that the old network gives them, by one cross-entropy.

    The generator is trained against a student: it seeks images on which the two differ, and about which the network is
    unsure.
    """

    name = "data-free-replay"
    title = "Data-free Replay"
    citation = "Liu et al., Few-Shot Class-Incremental Learning via Entropy-Regularized Data-Free Replay, ECCV 2022"
    differs = (
        "The original trains a new generator after every session, in 7,500 rounds of 512 images; here one is trained, "
        "after the base session, in 60 rounds of 64. Cosines keep their scale in sessions, where the original drops it."
    )
    counts = ("batch",)
    keeps = Keeps.WEIGHTS | Keeps.GENERATOR

    rounds: int = 60
    batch: int = 64
    unsure: float = 0.01  # weight of the entropy
    replayed: int = 25  # generated images in each epoch of a session
    maker: ImageGenerator = state()

    def fit(self, base: Samples, task: Task) -> None:
        """Take the network and train a generator against it; no image is used for that."""
        super().fit(base, task)
        net = self.net
        with torch.random.fork_rng(devices=[]):  # layers draw from the global generator when they are built
            torch.manual_seed(task.seed)
            self.maker, student = ImageGenerator(net.lower.framing.crop).to(net.device), Student(net).to(net.device)
        train_generator(
            self.maker, student, net,
            rounds=self.rounds, batch=self.batch, unsure=self.unsure, generator=self.generator,
        )  # fmt: skip

    def learn(self, shots: Samples) -> None:
        """Train on the shots and on images generated anew in every epoch, which the network before labels."""
        net = self.net
        before, entering, labels = net.snapshot(), net.entering(shots.shown), shots.labels.to(net.device)

        def loss() -> Tensor:
            with torch.no_grad(), net.casting():
                made = net.lower(self.maker.make(self.replayed, self.generator)).float()
                guesses = before.logits(made).argmax(1)
            return functional.cross_entropy(net.logits(torch.cat([entering, made])), torch.cat([labels, guesses]))

        self.train_session(shots, loss)


def train_generator(
    maker: ImageGenerator,
    student: nn.Module,
    teacher: Callable[[Tensor], Tensor],
    *,
    rounds: int,
    batch: int,
    unsure: float,
    generator: torch.Generator,
) -> None:
    """Play student against generator: five steps to follow the teacher's logits, then one to find where it does not."""
    follow = torch.optim.SGD(student.parameters(), STUDENT_RATE, momentum=0.9, nesterov=True)
    seek = torch.optim.Adam(maker.parameters(), GENERATOR_RATE)
    falls = [int(share * rounds) for share in FALLS]
    schedules = [torch.optim.lr_scheduler.MultiStepLR(part, falls, 0.1) for part in (follow, seek)]
    maker.train()
    student.train()
    for _ in range(rounds):
        for _ in range(STUDENT_STEPS):
            with torch.no_grad():
                pixels = maker.make(batch, generator)
                wanted = teacher(pixels)
            take_step(follow, (student(pixels) - wanted).abs().mean())
        pixels = maker.make(batch, generator)
        take_step(seek, generator_loss(student(pixels), teacher(pixels), unsure))
        for schedule in schedules:
            schedule.step()
    maker.eval().requires_grad_(False)


def generator_loss(student: Tensor, teacher: Tensor, unsure: float) -> Tensor:
    """Give −mean |s − t| − λ H(softmax t) of logits [n k]: low where the two differ and the teacher is unsure."""
    return -(student - teacher).abs().mean() - unsure * entropy(teacher)


def entropy(logits: Tensor) -> Tensor:
    """Give the mean entropy of softmax(logits)."""
    return -(torch.softmax(logits, 1) * torch.log_softmax(logits, 1)).sum(1).mean()
