"""All that is kept of a class: its number of images, three vectors, and the score its images get (Eq. mem)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.learner.inputs import Label

ROWS = ("counts", "means", "induced", "vectors", "own_scores")  # what is kept of each class, and saved


@final
@dataclass(frozen=True, eq=False)
class ClassRows:
    """One row for each of k classes: those of one session, or all that are known, in the order they were taught.

    No image, and no feature of one image, is in it.
    """

    labels: tuple[Label, ...]
    counts: Tensor  # int64 [k], images seen
    means: Tensor  # [k d], mean embeddings
    induced: Tensor  # [k d], mean embedding of reconstructions (Eq. weights); the mean itself for base classes
    vectors: Tensor  # [k d], unit length: what images are compared with
    own_scores: Tensor  # [k], the mean cosine that images of a class, not used to make its vector, have to it
    base: Tensor  # bool [k], taught by the base session

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""
        return sum(getattr(self, name).nbytes for name in (*ROWS, "base"))

    @property
    def bytes_per_class(self) -> int:
        """Bytes that each further class adds."""
        return self.nbytes // len(self.labels)

    def subset(self, keep: list[int]) -> ClassRows:
        """Give some of the rows."""
        kept = {name: getattr(self, name)[keep] for name in (*ROWS, "base")}
        return ClassRows(tuple(self.labels[row] for row in keep), **kept)

    def updated(self, session: ClassRows) -> ClassRows:
        """Give the rows once a session is over: known classes averaged with what is new, new classes appended."""
        row_of = {label: row for row, label in enumerate(self.labels)}
        known = [row for row, label in enumerate(session.labels) if label in row_of]
        new = session.subset([row for row, label in enumerate(session.labels) if label not in row_of])
        more = session.subset(known)
        rows = [row_of[label] for label in more.labels]
        old = self.subset(rows)
        share = more.counts / (old.counts + more.counts)
        merged = {
            "counts": old.counts + more.counts,
            "means": running_mean(old.means, old.counts, more.means, more.counts),
            "induced": running_mean(old.induced, old.counts, more.induced, more.counts),
            "vectors": more.vectors,
            "own_scores": torch.lerp(old.own_scores, more.own_scores, share),
        }
        grown = {name: torch.cat([getattr(self, name), getattr(new, name)]) for name in (*ROWS, "base")}
        for name, values in merged.items():
            grown[name][rows] = values
        return replace(self, labels=(*self.labels, *new.labels), **grown)


def running_mean(old: Tensor, n: Tensor, new: Tensor, m: Tensor) -> Tensor:
    """Give the mean of n + m rows from the means of n and of m: (n·old + m·new)/(n + m)."""
    share = (m / (n + m))[:, None]
    return torch.lerp(old, new, share)  # exactly `new` where n = 0


def unit(vectors: Tensor) -> Tensor:
    """Scale to unit length; zero stays zero."""
    return functional.normalize(vectors)
