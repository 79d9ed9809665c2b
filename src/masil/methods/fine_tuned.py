"""A projection onto class vectors, trained on base activations and fine-tuned in every session on shots and means.

This is NC-FSCIL's scheme (Yang et al., ICLR 2023): the backbone is frozen, and all a session sees is activations of its
shots and one mean of every earlier class. Its variants differ in two things, the loss and whether the class vectors are
a fixed frame or are learnt, which makes them the first three rows of MASIL's ablation.
"""

from __future__ import annotations

import copy
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.collapse import Projection, cosine_cross_entropy, dot_regression, simplex_etf
from masil.methods.descent import batches
from masil.methods.method import NearestVector, Published
from masil.methods.taught import check_features, check_total, class_means, new_classes, taught

FEATURES = 512  # of the embeddings, if that is room enough for the frame
HIDDEN = 1024  # the original's width for a ResNet-18; wider backbones get no more


class FineTuned(NearestVector):
    """Train g and, where they are not a frame, the class vectors; the rates are NC-FSCIL's.

    Its base rate is that of CIFAR-100 and miniImageNet, where it trains from a random start, as g does here. In session
    i each mean of an earlier novel class is replayed i times, or once if not `repeat`.
    """

    published: ClassVar[Published] = {
        "cifar100": {"session_lr": 0.25, "repeat": False},
        "miniimagenet": {"session_lr": 0.025},
    }

    loss: ClassVar[Literal["cross-entropy", "dot-regression"]]
    framed: ClassVar[bool]

    def __init__(
        self,
        *,
        total: int | None = None,
        seed: int = 0,
        steps: int = 300,
        lr: float = 0.25,
        session_steps: int = 100,
        session_lr: float = 0.05,
        repeat: bool = True,
    ) -> None:
        super().__init__(total=total, seed=seed)
        self.repeat = repeat
        self.base_ = self.sessions_ = 0  # base classes, sessions since
        self.steps, self.lr = steps, lr
        self.session_steps, self.session_lr = session_steps, session_lr
        self.memory_: Tensor | None = None  # [k d], one mean of activations for each class

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train from a random start, batches of 512, the rate falling to 1 % along a cosine."""
        self.memory_ = None
        k, d = new_classes(activations, labels), activations.shape[1]
        self.generator_ = torch.Generator().manual_seed(self.seed)
        self.scale_ = float(activations.norm(dim=1).mean().clamp_min(1e-12))
        room = check_total(k if self.total is None else self.total, k) if self.framed else k
        features = max(FEATURES, room)
        self.g_ = Projection(d, features, hidden=[min(2 * d, HIDDEN)] * 2, generator=self.generator_)
        self.vectors_ = (
            simplex_etf(room, features, self.generator_)
            if self.framed
            else functional.normalize(torch.randn(k, features, generator=self.generator_))
        )
        self.base_, self.sessions_ = k, 0
        self._train(activations, labels, self.steps, 512, self.lr, warmup=0.05)
        self._remember(activations, labels)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Fine-tune on the shots and the means of every earlier class, batches of 64."""
        memory = taught(self.memory_)
        check_features(activations, memory.shape[1])
        known = len(memory)
        new = new_classes(activations, labels, known)
        if self.framed:
            check_total(len(self.vectors_), known + new)
        else:
            self.vectors_ = torch.cat([self.vectors_, self._embed(class_means(activations, labels, known))])
        self.sessions_ += 1
        times = self.sessions_ if self.repeat else 1
        replayed = torch.cat([torch.arange(self.base_), torch.arange(self.base_, known).repeat(times)])
        rows, own = torch.cat([memory[replayed], activations]), torch.cat([replayed, labels])
        self._train(rows, own, self.session_steps, 64, self.session_lr, warmup=0.0)
        self._remember(activations, labels)

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give embeddings and the vectors of the classes taught so far."""
        memory = taught(self.memory_)
        check_features(activations, memory.shape[1])
        return self._embed(activations), functional.normalize(self.vectors_[: len(memory)])

    def trained(self) -> tuple[Projection, Tensor]:
        """Give g of activations as they are, not scaled, and the class vectors taught so far."""
        known = len(taught(self.memory_))
        g = copy.deepcopy(self.g_)
        for layer in (g.layers[0], g.skip):
            assert isinstance(layer, nn.Linear)
            layer.weight.data /= self.scale_
        return g, self.vectors_[:known]

    @torch.no_grad()
    def _embed(self, activations: Tensor) -> Tensor:
        return self.g_(activations / self.scale_)

    def _remember(self, activations: Tensor, labels: Tensor) -> None:
        known = 0 if self.memory_ is None else len(self.memory_)
        means = class_means(activations, labels, known)
        self.memory_ = means if self.memory_ is None else torch.cat([self.memory_, means])

    def _train(self, rows: Tensor, labels: Tensor, steps: int, batch: int, lr: float, *, warmup: float) -> None:
        vectors = self.vectors_ if self.framed else nn.Parameter(self.vectors_)
        learnt = [*self.g_.requires_grad_(True).parameters(), *([] if self.framed else [vectors])]
        optimiser = torch.optim.SGD(learnt, lr, momentum=0.9, weight_decay=5e-4)
        turn = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step / steps, warmup))
        seen = len(self.vectors_) if self.memory_ is None else int(labels.max()) + 1
        for chosen in batches(len(rows), batch, steps, self.generator_):
            z = self.g_(rows[chosen] / self.scale_)
            if self.loss == "dot-regression":
                loss = dot_regression(z, vectors[labels[chosen]])
            else:
                loss = cosine_cross_entropy(z, vectors[:seen], labels[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            turn.step()
        self.g_.requires_grad_(False)
        if not self.framed:
            self.vectors_ = functional.normalize(vectors.detach())


def _rate(done: float, warmup: float) -> float:
    """Rise from 0 to 1 in the first `warmup` of the steps, then fall to .01 along a cosine."""
    if done < warmup:
        return done / warmup
    through = torch.tensor((done - warmup) / (1 - warmup) * torch.pi)
    return 0.01 + 0.99 * 0.5 * (1 + float(torch.cos(through)))
