"""The nearest class mean by cosine: the field's plainest method, and the one every other has to beat.

Called "decoupled-cosine" in the FSCIL literature, after the matching networks of Vinyals et al. (2016): the backbone is
fixed, a class is the mean of its activations, and nothing is trained in a session.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.collapse import class_means
from masil.methods.method import NearestVector, Queries, Samples, Task


@final
@dataclass(kw_only=True)
class DCosine(NearestVector):
    """A class is the mean of its activations; the largest cosine wins."""

    name = "d-cosine"
    title = "D-Cosine"
    citation = "Vinyals et al., Matching Networks for One Shot Learning, NeurIPS 2016"

    def fit(self, base: Samples, task: Task) -> None:
        """Start afresh from the base classes' means."""
        self.vectors = class_means(base.activations, base.labels)

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes."""
        self.vectors = torch.cat([self.vectors, class_means(shots.activations, shots.labels, len(self.vectors))])

    def embed(self, queries: Queries) -> Tensor:
        """Give activations."""
        return queries.activations
