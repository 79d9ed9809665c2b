"""Our reading of MgSvF: a slow and a fast feature space, the fast one held by frequency (Zhao et al. 2021)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.hardware import resolve_device
from masil.methods.method import Keeps, Queries, Samples, Task, state
from masil.methods.network import BlockMethod


@final
@dataclass(kw_only=True)
class MgSvF(BlockMethod):
    """Keep the network as it was, tune a copy of its last block on the shots, and compare in both spaces at once.

    A session lowers the cross-entropy of scaled cosines to class means in the fast space, and
    λ Σ_q γ_q ‖D_q (m − m⁰)‖²: m are the fast feature maps, m⁰ those before the session, D_q the q-th group of their
    frequencies (a 2-D cosine transform over places), γ_q = `fading`^q. So low frequencies stay and high ones may move.
    Means of earlier classes are kept as they were.
    """

    name = "mgsvf"
    title = "our reading of MgSvF"
    citation = (
        "Zhao et al., MgSvF: Multi-Grained Slow vs. Fast Framework for Few-Shot Class-Incremental Learning, TPAMI 2021"
    )
    differs = (
        "No code is public and the constants are not known; a metric loss is read as cosines to class means, the fast "
        "network's last block is tuned, the slow one is fixed, and frequencies are those over the places of a map."
    )
    counts = ("groups",)
    keeps = Keeps.MEANS | Keeps.WEIGHTS

    share: float = 0.5  # r, of the fast space
    groups: int = 4
    fading: float = 0.5
    weight: float = 1.0  # λ
    scale: float = 16.0
    epochs: int = 20
    lr: float = 1e-3
    device: torch.device = state()
    means: Tensor = state()  # [k 2d]

    def fit(self, base: Samples, task: Task) -> None:
        """Let both spaces be that of the backbone, and average each class in them."""
        self.take_network(base, task)
        self.device = resolve_device(task.device)
        self.block = self.block.to(self.device)
        unit = functional.normalize(base.activations.float())
        self.means = class_means(torch.cat([unit, self.share * unit], 1), base.labels)

    def learn(self, shots: Samples) -> None:
        """Tune the fast network's last block on the shots, all in one batch, then append the new classes' means."""
        entering, truth, known = self.entering(shots).to(self.device), shots.labels.to(self.device), len(self.means)
        old = self.means[:, self.means.shape[1] // 2 :].to(self.device)
        with torch.no_grad():
            before = self.block.maps(entering)

        def loss(chosen: Tensor) -> Tensor:
            maps, labels = self.block.maps(entering[chosen]), truth[chosen]
            unit = functional.normalize(maps.mean((2, 3)))
            vectors = functional.normalize(torch.cat([old, class_means(unit, labels, known)]))
            changes = change_by_frequency(before[chosen], maps, self.groups)
            held = self.fading ** torch.arange(self.groups, device=self.device) @ changes
            return functional.cross_entropy(self.scale * unit @ vectors.T, labels) + self.weight * held

        self.fine_tune_steadily([*self.block.parameters()], loss, len(entering), steps=self.epochs, lr=self.lr)
        self.means = torch.cat([self.means, class_means(self.embed(shots), shots.labels, known)])

    def scores(self, queries: Queries) -> Tensor:
        """Give minus the distance to each mean, in both spaces together."""
        return -torch.cdist(self.embed(queries), self.means)

    def embed(self, queries: Queries) -> Tensor:
        """Give [slow; r · fast], each part at unit length, [n 2d]."""
        slow, fast = (functional.normalize(part) for part in (queries.activations.float(), self.features_now(queries)))
        return torch.cat([slow, self.share * fast], 1)


def cosine_transform(n: int) -> Tensor:
    """Give the orthonormal DCT-II [n n]: row q is √(2/n) cos(π q (2i + 1) / 2n), the first divided by √2."""
    q, i = torch.arange(n)[:, None], torch.arange(n)
    rows: Tensor = (2 / n) ** 0.5 * torch.cos(torch.pi * q * (2 * i + 1) / (2 * n))
    rows[0] /= 2**0.5
    return rows


def frequency_groups(h: int, w: int, groups: int) -> Tensor:
    """Give each frequency of h × w places a group, int64 [h w]: 0 for the lowest, in as equal shares as can be."""
    height = torch.arange(h)[:, None] / h + torch.arange(w) / w
    order = height.flatten().argsort(stable=True)
    group_of = torch.empty(h * w, dtype=torch.int64)
    for group, part in enumerate(order.tensor_split(groups)):
        group_of[part] = group
    return group_of.reshape(h, w)


def change_by_frequency(before: Tensor, after: Tensor, groups: int) -> Tensor:
    """Give ‖D_q (after − before)‖² / ‖before‖² for each group of frequencies q of maps [n d h w]; [groups].

    The transform is orthonormal, so the groups add up to the whole change ‖after − before‖² / ‖before‖².
    """
    h, w = before.shape[2:]
    difference = after - before
    frequencies = cosine_transform(h).to(difference) @ difference @ cosine_transform(w).to(difference).T
    energy = frequencies.square().sum((0, 1)).flatten()
    places = frequency_groups(h, w, groups).flatten().to(energy.device)
    return energy.new_zeros(groups).index_add(0, places, energy) / before.square().sum()
