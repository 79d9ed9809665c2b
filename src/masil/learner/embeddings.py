"""g as the base session makes it, of all images or of some of them: second moments are summed once, then added up."""

from __future__ import annotations

from functools import reduce
from typing import final

import torch
from torch import Tensor

from masil.collapse import ClassMoments, Embedding, LinearMap, Whitening, sum_parts
from masil.errors import InputError
from masil.learner.rows import Shots
from masil.learner.settings import Settings


@final
class Embeddings:
    """Learns g from any of the base images, soonest where they are whole `parts` of them, numbered by int64 [n]."""

    def __init__(self, shots: Shots, settings: Settings, parts: Tensor) -> None:
        self._shots, self._settings, self._parts = shots, settings, parts
        self._sums: list[ClassMoments] | None = None
        if settings.embedding == "whitening" and settings.shrinkage != "auto":
            self._sums = sum_parts(shots.x, shots.codes, parts)

    def of_all(self) -> Embedding:
        """Learn g from all images."""
        if self._sums is None:
            return make_embedding(self._settings, self._shots.x, self._shots.codes)
        return Whitening.of_moments(reduce(ClassMoments.plus, self._sums), self._settings.shrinkage)  # type: ignore[arg-type]

    def of_rows(self, rows: Tensor) -> Embedding:
        """Learn g from the images `rows`, bool [n]; up to a rotation, of which neither cosines nor lengths know."""
        counts, sizes = (torch.bincount(parts, minlength=int(self._parts.max()) + 1)
                         for parts in (self._parts[rows], self._parts))  # fmt: skip
        if self._sums is None or bool(((counts > 0) & (counts < sizes)).any()):
            codes = torch.unique(self._shots.codes[rows], return_inverse=True)[1]
            return make_embedding(self._settings, self._shots.x[rows], codes)
        whole = reduce(ClassMoments.plus, [self._sums[part] for part in counts.nonzero()[:, 0].tolist()])
        return Whitening.of_moments(whole.present(), self._settings.shrinkage, rotated=True)  # type: ignore[arg-type]


def make_embedding(settings: Settings, x: Tensor, codes: Tensor) -> Embedding:
    """Give g: whitening of x = a^p by its classes' scatter, the identity, or one that was trained before."""
    form = settings.embedding
    if isinstance(form, Embedding):
        if form.features_in != x.shape[1]:
            raise InputError(
                f"The embedding takes {form.features_in} features but the activations have {x.shape[1]}; "
                "was it trained with the same backbone?"
            )
        return form.eval().requires_grad_(False)
    if form == "linear":
        return LinearMap(x.shape[1])
    return Whitening.fit(x, codes, settings.shrinkage)  # type: ignore[arg-type]  # it says what it takes
