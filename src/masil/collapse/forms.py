"""The three forms of g by name, so that a model file can say which one it holds."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from masil.collapse.embedding import Embedding
from masil.collapse.linear import LinearMap
from masil.collapse.projection import Projection
from masil.collapse.whitening import Whitening
from masil.errors import lookup

EMBEDDINGS: dict[str, type[Embedding]] = {form.form: form for form in (Projection, LinearMap, Whitening)}


def embedding_from_state(form: str, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> Embedding:
    """Make the map of that form which gave this `config` and `state`."""
    return lookup("form of embedding", form, EMBEDDINGS).from_state(config, state)
