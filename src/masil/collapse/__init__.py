"""Neural collapse: frames, the losses that draw embeddings to them, the three forms of g, and NC1–NC4."""

from masil.collapse.embedding import Embedding
from masil.collapse.forms import EMBEDDINGS, embedding_from_state
from masil.collapse.frames import FRAMES, orthogonal_frame, simplex_etf
from masil.collapse.linear import LinearMap, balanced_factors
from masil.collapse.losses import cosine_cross_entropy, dot_regression
from masil.collapse.measures import NCMeasures, nc_measures
from masil.collapse.moments import class_means
from masil.collapse.projection import Projection
from masil.collapse.whitening import Whitening

__all__ = [
    "EMBEDDINGS",
    "FRAMES",
    "Embedding",
    "LinearMap",
    "NCMeasures",
    "Projection",
    "Whitening",
    "balanced_factors",
    "class_means",
    "cosine_cross_entropy",
    "dot_regression",
    "embedding_from_state",
    "nc_measures",
    "orthogonal_frame",
    "simplex_etf",
]
