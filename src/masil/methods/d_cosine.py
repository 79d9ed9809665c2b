"""The nearest class mean by cosine: the field's plainest method, and the one every other has to beat.

Called "decoupled-cosine" in the FSCIL literature, after the matching networks of Vinyals et al. (2016): the backbone is
fixed, a class is the mean of its activations, and nothing is trained in a session.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.method import NearestVector, Queries, Samples, Task, state


@dataclass(kw_only=True)
class ClassMeans(NearestVector):
    """A class is the mean of its embeddings, by default activations, and nothing is trained in a session."""

    def fit(self, base: Samples, task: Task) -> None:
        """Start afresh from the base classes' means."""
        self.vectors = class_means(self.embed(base), base.labels)

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes."""
        self.vectors = torch.cat([self.vectors, class_means(self.embed(shots), shots.labels, len(self.vectors))])

    def embed(self, queries: Queries) -> Tensor:
        """Give activations."""
        return queries.activations


@final
@dataclass(kw_only=True)
class DCosine(ClassMeans):
    """A class is the mean of its activations; the largest cosine wins."""

    name = "d-cosine"
    title = "D-Cosine"
    citation = "Vinyals et al., Matching Networks for One Shot Learning, NeurIPS 2016"


@final
@dataclass(kw_only=True)
class DCosineCentred(ClassMeans):
    """The same once the mean of the base session is taken off: the control for methods that centre activations."""

    name = "d-cosine-centred"
    title = "D-Cosine, centred"
    citation = DCosine.citation
    differs = "A control of ours: unit activations are centred on their mean over the base session."
    centre: Tensor = state()  # [d]

    def fit(self, base: Samples, task: Task) -> None:
        """Find the centre, then the base classes' means."""
        self.centre = functional.normalize(base.activations).mean(0)
        super().fit(base, task)

    def embed(self, queries: Queries) -> Tensor:
        """Give centred activations."""
        return functional.normalize(queries.activations) - self.centre
