"""TEEN: a novel class borrows from the base classes it resembles, without any training (Wang et al. 2023).

Few shots give a mean that errs towards nothing in particular, while base means are well known and lie close to related
classes. On frozen activations nothing differs from the original but the backbone, which is the shared one.
"""

from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.errors import InputError
from masil.methods.method import NearestVector, Published
from masil.methods.taught import check_features, class_means, new_classes, taught


@final
class Teen(NearestVector):
    """Draw each novel mean p towards base means B: p ← (1 − a) p + a · unit(softmax(τ p Bᵀ) B), all of unit length.

    `a` is .1 for CIFAR-100 and .5 for CUB-200 and miniImageNet in the original's scripts; `temperature` is its τ.
    """

    citation = "Wang et al., Few-Shot Class-Incremental Learning via Training-Free Prototype Calibration, NeurIPS 2023"
    published: ClassVar[Published] = {"cifar100": {"a": 0.1}}

    def __init__(self, *, total: int | None = None, seed: int = 0, a: float = 0.5, temperature: float = 16.0) -> None:
        super().__init__(total=total, seed=seed)
        if not 0 <= a <= 1:
            raise InputError(f"The share `a` of the base classes is {a}, but must lie in [0, 1].")
        self.a = a
        self.temperature = temperature
        self.base_: Tensor | None = None  # [k d], unit length
        self.vectors_: Tensor | None = None  # [k d], those of novel classes calibrated

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Start afresh from the base classes' means."""
        new_classes(activations, labels)
        self.base_ = self.vectors_ = functional.normalize(class_means(activations, labels))

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Append calibrated means."""
        base, vectors = taught(self.base_), taught(self.vectors_)
        check_features(activations, base.shape[1])
        new_classes(activations, labels, len(vectors))
        means = functional.normalize(class_means(activations, labels, len(vectors)))
        self.vectors_ = torch.cat([vectors, calibrated(means, base, self.a, self.temperature)])

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give activations and the classes' vectors."""
        vectors = taught(self.vectors_)
        check_features(activations, vectors.shape[1])
        return functional.normalize(activations), functional.normalize(vectors)


def calibrated(means: Tensor, base: Tensor, a: float, temperature: float) -> Tensor:
    """Give (1 − a) p + a · unit(softmax(τ p Bᵀ) B) for unit rows p of `means` and B of `base`."""
    borrowed = torch.softmax(temperature * means @ base.T, 1) @ base
    return (1 - a) * means + a * functional.normalize(borrowed)
