"""Simplex fine-tuning as the paper writes it: Eq. final_loss over two layers, by SGD with warm restarts.

With h_i the embeddings of a session's shots D, M_y the remembered mean of each of the k classes seen, and ŵ_y the
simplex representation of a class (its vertex for a base class, Eq. weights for a novel one),

    (1/|D|) Σ_D (w_y·h_i − 1)² + (1/k) Σ_y (w_y·M_y − 1)² + α Σ_y ‖w_y − ŵ_y‖².

It only attracts, so it falls apart into one quadratic problem per class; nothing keeps classes apart. The class vectors
are the rows of a product of two matrices. ŵ^{1/L}, which a signed vector does not have, is read as the balanced
factorisation of all class vectors, what deep linear networks converge to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.collapse import balanced_factors
from masil.errors import MasilError
from masil.training import Schedule, shuffled_batches

SGDR = Schedule(shape="cosine", warmup=0.0, cycles=3)  # each cycle twice as long as the one before


@final
@dataclass(frozen=True)
class TuningData:
    """What a session's fine-tuning sees; classes are 0 … k − 1, the session's own last."""

    embeddings: Tensor  # h [n d], of the shots
    labels: Tensor  # [n]
    memory: Tensor  # M [k d], the mean embedding of every class seen
    induced: Tensor  # ŵ [k d]


def final_loss(W: Tensor, data: TuningData, alpha: float, shots: Tensor, remembered: Tensor) -> Tensor:
    """Give Eq. final_loss of class vectors W [k d], its two means taken over rows of the shots and of the memory."""
    fit = ((W[data.labels[shots]] * data.embeddings[shots]).sum(1) - 1).square().mean()
    memory = ((W[remembered] * data.memory[remembered]).sum(1) - 1).square().mean()
    return fit + memory + alpha * (W - data.induced).square().sum()


def fine_tune_simplex(
    start: Tensor, data: TuningData, *, alpha: float, iterations: int, lr: float, batch: int, generator: torch.Generator
) -> Tensor:
    """Lower Eq. final_loss from the class vectors `start` [k d], both layers at once; give the class vectors.

    Every iteration sees at most `batch` shots and as many remembered classes. The momentum is .9.
    """
    layers = [factor.requires_grad_() for factor in balanced_factors(start)]
    optimiser = torch.optim.SGD(layers, lr, momentum=0.9)
    shots = shuffled_batches(len(data.labels), batch, iterations, generator)
    remembered = shuffled_batches(len(data.memory), batch, iterations, generator)
    for step, (some, classes) in enumerate(zip(shots, remembered, strict=True)):
        optimiser.param_groups[0]["lr"] = lr * SGDR.factor(step, iterations)
        optimiser.zero_grad()
        final_loss(layers[0] @ layers[1], data, alpha, some, classes).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    tuned = (layers[0] @ layers[1]).detach()
    if not bool(tuned.isfinite().all()):
        raise MasilError(f"Simplex fine-tuning diverged at a rate of {lr} with alpha {alpha}; lower one of them.")
    return tuned
