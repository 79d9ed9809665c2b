"""The nearest class mean by cosine: the field's plainest method, and the one every other has to beat.

Called "decoupled-cosine" in the FSCIL literature, after the matching networks of Vinyals et al. (2016): the backbone is
fixed, a class is the mean of its activations, and nothing is trained in a session.
"""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.method import NearestVector
from masil.methods.taught import check_features, class_means, new_classes, taught


@final
class DCosine(NearestVector):
    """Remember one mean per class; predict the class whose mean has the largest cosine to the image's activations."""

    citation = "Vinyals et al., Matching Networks for One Shot Learning, NeurIPS 2016"

    def __init__(self, *, total: int | None = None, seed: int = 0) -> None:
        super().__init__(total=total, seed=seed)
        self.means_: Tensor | None = None  # [k d]

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Start afresh from the base classes' means."""
        new_classes(activations, labels)
        self.means_ = class_means(activations, labels)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Append the means of classes k, k + 1, …"""
        means = taught(self.means_)
        check_features(activations, means.shape[1])
        new_classes(activations, labels, len(means))
        self.means_ = torch.cat([means, class_means(activations, labels, len(means))])

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give activations and class means."""
        means = taught(self.means_)
        check_features(activations, means.shape[1])
        return functional.normalize(activations), functional.normalize(means)
