"""TEEN: a novel class borrows from the base classes it resembles, without any training (Wang et al. 2023).

Few shots give a mean that errs towards nothing in particular, while base means are well known and lie close to related
classes.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.errors import InputError
from masil.learner import borrowed
from masil.methods.class_means import ClassMeans
from masil.methods.method import Published, Samples, Task, state
from masil.methods.tuning import Chooses


@dataclass(kw_only=True)
class _Teen(Chooses, ClassMeans):
    """Draw each novel mean p towards base means B: p ← (1 − a) p + a · unit(softmax(τ p Bᵀ) B), all of unit length."""

    citation = "Wang et al., Few-Shot Class-Incremental Learning via Training-Free Prototype Calibration, NeurIPS 2023"
    a: float | None = 0.5
    temperature: float | None = 16.0  # τ
    base: Tensor = state()  # [k d], unit length

    def __post_init__(self) -> None:
        if self.a is not None and not 0 <= self.a <= 1:
            raise InputError(f"The share `a` of the base classes is {self.a}, but must lie in [0, 1].")

    def fit(self, base: Samples, task: Task) -> None:
        """Start afresh from the base classes' means."""
        self.choose(base, task)
        self.base = self.vectors = functional.normalize(class_means(base.activations, base.labels))

    def learn(self, shots: Samples) -> None:
        """Append calibrated means."""
        means = functional.normalize(class_means(shots.activations, shots.labels, len(self.vectors)))
        drawn = functional.normalize(borrowed(means, self.base, self.value("temperature")))
        a = self.value("a")
        self.vectors = torch.cat([self.vectors, (1 - a) * means + a * drawn])


@final
@dataclass(kw_only=True)
class Teen(_Teen):
    """As published: `a` is .1 for CIFAR-100 and .5 for CUB-200 and miniImageNet in the original's scripts."""

    name = "teen"
    title = "TEEN"
    differs = "Nothing differs on frozen activations but the backbone, which is the shared one."
    published: ClassVar[Published] = {"cifar100": {"a": 0.1}}


@final
@dataclass(kw_only=True)
class TunedTeen(_Teen):
    """Share and temperature are chosen on base classes that play novel.

    Activations of a shared backbone are non-negative: their cosines are high and close, so that softmax at 16 is nearly
    flat and draws every class towards the mean of all.
    """

    name = "teen-tuned"
    title = "TEEN (tuned)"
    differs = "Share and temperature are chosen on base classes that play novel, as for every other method."
    tried = {"a": (0.5, 0.1, 0.3), "temperature": (16.0, 64.0, 256.0)}  # noqa: RUF012
    a: float | None = None
    temperature: float | None = None
