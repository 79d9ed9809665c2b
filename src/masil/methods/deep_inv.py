"""DeepInv: images that the network's own statistics bring back are replayed and distilled (Yin et al. 2020)."""

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.inversion import Inversion, synthesise
from masil.methods.method import Samples, Task, state
from masil.methods.stage import StageMethod, StageNetwork

MOST, FEWEST = 256, 64  # images that are made at a time: batch norms need some for their statistics


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

    each: int = 4
    rounds: int = 100
    distilled: float = 1.0  # weight μ of both distillations
    temperature: float = 2.0
    made: Tensor = state()  # [m c·h·w], made images where they enter the last stage
    made_labels: Tensor = state()

    def fit(self, base: Samples, task: Task) -> None:
        """Take the network and make images of the base classes."""
        super().fit(base, task)
        device = self.net.device
        self.made = torch.empty(0, self.net.frozen.network.features, device=device)
        self.made_labels = torch.empty(0, dtype=torch.int64, device=device)
        self._make(0)

    def learn(self, shots: Samples) -> None:
        """Train on shots and made images, then make images of the new classes."""
        assert shots.images is not None
        net, known = self.net, len(self.net.rows)
        before, entering, labels = net.snapshot(), net.entering(shots.images), shots.labels.to(net.device)
        with torch.no_grad():
            of_shots, of_made = before.logits(entering), before.logits(self.made)

        def loss() -> Tensor:
            now = net.logits(entering)
            old = distillation(now[:, :known], of_shots, self.temperature)
            replayed = distillation(net.logits(self.made), of_made, self.temperature)
            return functional.cross_entropy(now, labels) + self.distilled * (old + replayed)

        new = int(shots.labels.max()) + 1 - known
        net.train(new, loss, epochs=self.epochs, lr=self.lr, gentle=self.gentle, generator=self.generator)
        self._make(known)

    def remarks(self) -> dict[str, Any]:
        """Say how many images were made, and how many the network takes for what they were meant to be."""
        with torch.no_grad():
            right = self.net.logits(self.made).argmax(1) == self.made_labels
        return {"made_images": len(right), "made_recognised": round(float(right.float().mean()), 4)}

    def _make(self, first: int) -> None:
        """Make images of the classes from `first` on; where they are few, others of old classes help the statistics."""
        net = self.net
        wanted = torch.arange(first, len(net.rows)).repeat(self.each)
        helpers = torch.arange(first).repeat(1 + FEWEST // max(1, first))[: max(0, FEWEST - len(wanted))]
        for labels in torch.split(torch.cat([wanted, helpers]), MOST):
            images = make_images(net, labels.to(net.device), Inversion(rounds=self.rounds), self.generator)
            kept = images[labels.to(net.device) >= first]
            with torch.no_grad():
                self.made = torch.cat([self.made, net.lower(kept)])
        self.made_labels = torch.cat([self.made_labels, wanted.to(net.device)])


def make_images(net: StageNetwork, labels: Tensor, how: Inversion, generator: torch.Generator) -> Tensor:
    """Make an image of each label at the size that the network expects."""
    return synthesise(net, net.batch_norms(), labels, net.lower.framing.crop, how, generator)


def distillation(now: Tensor, before: Tensor, temperature: float) -> Tensor:
    """Give −Σ_j p_j log q_j, the mean over rows: p of the old network, q of all classes that it is asked for now.

    p is 0 for classes that the old network did not know.
    """
    targets = torch.softmax(before / temperature, 1)
    return -(targets * torch.log_softmax(now / temperature, 1)[:, : before.shape[1]]).sum(1).mean()
