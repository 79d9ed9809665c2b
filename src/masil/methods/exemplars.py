"""Images kept from the past, by their activations: the memory of the replay methods."""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

# Of a class, as in the class-incremental literature. The rows of the FSCIL tables had less: 400 of all base classes and
# one of each novel class.
EACH = 20


@final
class Exemplars:
    """At most `each` images a class, chosen by herding. The backbone is frozen, so activations stand for the images."""

    def __init__(self, features: int, each: int = EACH) -> None:
        self.each = each
        self.activations = torch.empty(0, features)  # [n d]
        self.labels = torch.empty(0, dtype=torch.int64)  # [n]

    def add(self, activations: Tensor, labels: Tensor, embed: Callable[[Tensor], Tensor]) -> None:
        """Choose among the images of each class by their embeddings, unit length."""
        for label in range(int(labels.min()), int(labels.max()) + 1):
            rows = activations[labels == label]
            chosen = rows[herd(functional.normalize(embed(rows)), self.each)]
            self.activations = torch.cat([self.activations, chosen.float()])
            self.labels = torch.cat([self.labels, torch.full((len(chosen),), label)])

    def with_shots(self, activations: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Give all exemplars, then a session's shots."""
        return torch.cat([self.activations, activations.float()]), torch.cat([self.labels, labels])


def herd(z: Tensor, most: int) -> Tensor:
    """Order rows so that every first few have a mean near that of all (Rebuffi et al. 2017, Algorithm 4).

    Row p_k is argmin ‖μ − (x + Σ_{j<k} p_j)/k‖ over the rows x that are left.
    """
    mean, total = z.mean(0), torch.zeros_like(z[0])
    free = torch.ones(len(z), dtype=torch.bool)
    chosen = []
    for k in range(1, min(most, len(z)) + 1):
        distances = (mean - (z + total) / k).norm(dim=1).masked_fill(~free, torch.inf)
        best = int(distances.argmin())
        chosen.append(best)
        free[best] = False
        total = total + z[best]
    return torch.tensor(chosen)
