"""Cosine softmax with a negative margin: classes held apart less leave more room for new ones (Liu et al. 2020).

Called "decoupled-NegCosine" in the FSCIL literature.
"""

from dataclasses import dataclass
from typing import ClassVar, final

from masil.methods.mapped_means import MappedMeans
from masil.methods.method import Published
from masil.protocol import Protocol
from masil.training import CosineLoss


@final
@dataclass(kw_only=True)
class DNegCosine(MappedMeans):
    """Train −log softmax_y(s (cos θ_j − m [j = y])) with m < 0 on the base session; then compare with class means.

    The margin is that of the original's cosine softmax with five shots on miniImageNet.
    """

    name = "d-negcosine"
    title = "D-NegCosine"
    citation = "Liu et al., Negative Margin Matters: Understanding Margin in Few-Shot Classification, ECCV 2020"
    differs = (
        "The original fits a cosine classifier to the shots; as in the decoupled rows of the FSCIL tables, a novel "
        "class is their mean. On a shared backbone a linear map of activations is trained instead of the backbone."
    )
    published: ClassVar[Published] = {"cub200": {"margin": -0.01}}

    margin: float = -0.02
    scale: float = 30.0

    def loss(self, protocol: Protocol) -> CosineLoss:
        """Give the cosine loss with the margin."""
        return CosineLoss(scale=self.scale, margin=self.margin)
