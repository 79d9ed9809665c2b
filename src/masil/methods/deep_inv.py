"""DeepInv: images that the network's own statistics bring back are replayed and distilled (Yin et al. 2020)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.methods.method import Samples, Task, state
from masil.methods.stage import StageMethod, StageNetwork

MOST, FEWEST = 256, 64  # images that are made at a time: batch norms need some for their statistics
RATE, SHIFT = 0.1, 2  # of Adam; pixels by which images are moved, at random, before each round
STATISTICS, SMOOTH = 3.0, 2.5e-5  # weights beside the cross-entropy


@contextmanager
def watch_statistics(norms: Iterable[nn.BatchNorm2d]) -> Iterator[list[Tensor]]:
    """Note in forward passes within this block how far the inputs of batch norms are from what these remember.

    A norm counts ‖var − its var‖/‖its var‖ + ‖mean − its mean‖/‖its deviation‖, so that no layer outweighs the others
    and the weight means the same for every network.
    """
    gaps: list[Tensor] = []

    def note(norm: nn.Module, inputs: tuple[Tensor]) -> None:
        expected_mean, expected_variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
        variance, mean = torch.var_mean(inputs[0], (0, 2, 3), correction=0)
        size = torch.linalg.vector_norm
        of_variance = size(variance - expected_variance) / size(expected_variance)
        gaps.append(of_variance + size(mean - expected_mean) / size(expected_variance.sqrt()))

    hooks = [norm.register_forward_pre_hook(note) for norm in norms]
    try:
        yield gaps
    finally:
        for hook in hooks:
            hook.remove()


@final
@dataclass(kw_only=True)
class DeepInv(StageMethod):
    """Lower the cross-entropy of the shots while the old network's answers, to shots and made images, are distilled.

    After the base session and after every other, `each` images of every new class are made from noise. They are kept
    where they enter the last stage; no real image is.
    """

    name = "deepinv"
    title = "DeepInv"
    citation = "Yin et al., Dreaming to Distill: Data-Free Knowledge Transfer via DeepInversion, CVPR 2020"
    differs = (
        "The FSCIL row's details are not published: as for Data-free Replay, the last stage and the rows are trained. "
        "Images are made in 100 rounds, not 2,000, and statistics are compared relative to their size."
    )

    counts = ("each", "rounds")
    each: int = 4
    rounds: int = 100
    distilled: float = 1.0  # weight μ of both distillations
    temperature: float = 2.0
    made: Tensor = state()  # [m c·h·w], made images where they enter the last stage
    made_labels: Tensor = state()

    def fit(self, base: Samples, task: Task) -> None:
        """Take the network and make images of the base classes."""
        super().fit(base, task)
        self.made = torch.empty(0, self.net.frozen.network.features, device=self.net.device)
        self.made_labels = torch.empty(0, dtype=torch.int64, device=self.net.device)
        self._make(0)

    def learn(self, shots: Samples) -> None:
        """Train on shots and made images, then make images of the new classes."""
        net, known = self.net, len(self.net.rows)
        entering, labels = net.entering(shots.shown), shots.labels.to(net.device)
        with torch.no_grad():
            of_shots, of_made = net.logits(entering), net.logits(self.made)

        def loss() -> Tensor:
            now = net.logits(entering)
            old = distillation(now[:, :known], of_shots, self.temperature)
            replayed = distillation(net.logits(self.made), of_made, self.temperature)
            return functional.cross_entropy(now, labels) + self.distilled * (old + replayed)

        self.train_session(shots, loss)
        self._make(known)

    def remarks(self) -> dict[str, Any]:
        """Say how many images were made, and how many the network takes for what they were meant to be."""
        with torch.no_grad():
            right = self.net.logits(self.made).argmax(1) == self.made_labels
        return {
            **super().remarks(),
            "made_images": len(right),
            "made_recognised": round(float(right.float().mean()), 4),
        }

    def _make(self, first: int) -> None:
        """Make images of the classes from `first` on; where they are few, others of old classes help the statistics."""
        net = self.net
        wanted = torch.arange(first, len(net.rows)).repeat(self.each)
        helpers = torch.arange(first).repeat(1 + FEWEST // max(1, first))[: max(0, FEWEST - len(wanted))]
        for labels in torch.split(torch.cat([wanted, helpers]), MOST):
            images = make_images(net, labels.to(net.device), self.rounds, self.generator)
            kept = images[labels.to(net.device) >= first]
            with torch.no_grad():
                self.made = torch.cat([self.made, net.lower(kept)])
        self.made_labels = torch.cat([self.made_labels, wanted.to(net.device)])


def make_images(net: StageNetwork, labels: Tensor, rounds: int, generator: torch.Generator) -> Tensor:
    """Make an image of each label [n], normalised pixels [n 3 h w] of the size that the network expects, from noise.

    Adam, whose rate falls along a cosine, lowers the labels' cross-entropy, the gap to the batch norms' statistics and
    the roughness. The statistics are those of all images together, so there should be some dozens, of many classes.
    """
    side = net.lower.framing.crop
    pixels = torch.randn(len(labels), 3, side, side, generator=generator).to(labels.device).requires_grad_()
    optimiser = torch.optim.Adam([pixels], RATE)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, rounds)
    with watch_statistics(net.batch_norms()) as gaps:
        for _ in range(rounds):
            gaps.clear()
            moves = torch.randint(-SHIFT, SHIFT + 1, (2,), generator=generator).tolist()
            loss = functional.cross_entropy(net(pixels.roll(moves, (2, 3))), labels)
            loss = loss + STATISTICS * torch.stack(gaps).mean() + SMOOTH * roughness(pixels)
            (pixels.grad,) = torch.autograd.grad(loss, pixels)
            optimiser.step()
            rates.step()
    return pixels.detach()


def roughness(pixels: Tensor) -> Tensor:
    """Give ‖∂x‖ + ‖∂y‖ + the norms of both diagonal differences."""
    differences = (
        pixels[..., :, 1:] - pixels[..., :, :-1],
        pixels[..., 1:, :] - pixels[..., :-1, :],
        pixels[..., 1:, 1:] - pixels[..., :-1, :-1],
        pixels[..., 1:, :-1] - pixels[..., :-1, 1:],
    )
    return torch.stack([torch.linalg.vector_norm(difference) for difference in differences]).sum()


def distillation(now: Tensor, before: Tensor, temperature: float) -> Tensor:
    """Give −Σ_j p_j log q_j, the mean over rows: p of the old network, q of all classes that it is asked for now.

    p is 0 for classes that the old network did not know.
    """
    targets = torch.softmax(before / temperature, 1)
    return -(targets * torch.log_softmax(now / temperature, 1)[:, : before.shape[1]]).sum(1).mean()
