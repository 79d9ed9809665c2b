"""Neural collapse: frames, the losses that draw embeddings to them, the three forms of g, and NC1–NC4."""

from masil.collapse.embedding import EMBEDDINGS, Embedding, embedding_from_state
from masil.collapse.frames import FRAMES, orthogonal_frame, simplex_etf
from masil.collapse.free_features import FreeFeatures, least_squares_objective, minimise_free_features
from masil.collapse.linear import LinearMap, balanced_factors
from masil.collapse.losses import cosine_cross_entropy, dot_regression
from masil.collapse.measures import NCMeasures, nc_measures
from masil.collapse.moments import ClassMoments, class_means
from masil.collapse.projection import Projection, drawn_linear
from masil.collapse.whitening import Whitening, check_shrinkage, sum_parts
