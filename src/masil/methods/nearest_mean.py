"""The nearest class mean by cosine: the field's plainest method, and the one every other has to beat.

Called "decoupled-cosine" in the FSCIL literature, after the matching networks of Vinyals et al. (2016): the backbone is
fixed, a class is the mean of its activations, and nothing is trained in a session.
"""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.errors import InputError
from masil.methods.method import Method


@final
class NearestMean(Method):
    """Remember one mean per class; predict the class whose mean has the largest cosine to the image's activations."""

    def __init__(self) -> None:
        self.means_: Tensor | None = None  # [k d]

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Start afresh from the base classes' means."""
        self.means_ = None
        self.learn(activations, labels)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Append the means of classes k, k + 1, …"""
        known = 0 if self.means_ is None else len(self.means_)
        if int(labels.min()) < known:
            raise InputError(f"Class {int(labels.min())} has been taught before; {known} classes are known.")
        new = int(labels.max()) + 1 - known
        counts = torch.bincount(labels - known, minlength=new)
        if bool((counts == 0).any()):
            missing = known + int((counts == 0).nonzero()[0])
            raise InputError(f"The next class is {missing}, but there is no image of it; classes come in order.")
        sums = activations.new_zeros(new, activations.shape[1]).index_add_(0, labels - known, activations)
        means = sums / counts[:, None]
        self.means_ = means if self.means_ is None else torch.cat([self.means_, means])

    def predict(self, activations: Tensor) -> Tensor:
        """Compare with every mean."""
        if self.means_ is None:
            raise InputError("Nothing has been taught yet; call `fit` with the base session first.")
        return (functional.normalize(activations) @ functional.normalize(self.means_).T).argmax(1)
