"""How many concepts: the v that predicts held-out features of held-out activations best."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from masil.concepts.checks import check_activations
from masil.concepts.nmf import nmf
from masil.concepts.nnls import nnls
from masil.errors import InputError
from masil.progress import track

# The error of held-out rows alone always falls with v, as their coefficients are fitted to all their features. So
# features are held out too (bi-cross-validation, Owen & Perry 2009): with rows R and features E held out,
#     Q = argmin ‖A[¬R] − PQ‖,   P = argmin_{P>=0} ‖A[R,¬E] − P Q[:,¬E]‖,   error = ‖A[R,E] − P Q[:,E]‖² / ‖A[R]‖²,
# summed over the folds of features, so that every entry of A[R] is predicted once from others. Too many concepts fit
# the noise of A[R,¬E] and predict A[R,E] worse. A concept that lies almost whole in E cannot be seen in ¬E, where noise
# alone would give it any coefficient: it gets none.
VISIBLE = 0.1  # of a concept's squared length must lie in ¬E


@final
@dataclass(frozen=True)
class ChosenV:
    """The number of concepts that was chosen, and the errors it was chosen by."""

    v: int
    candidates: tuple[int, ...]  # ascending
    errors: Tensor  # float64 [folds candidates], the share of the squared activations that is not predicted


def choose_v(
    activations: Tensor,
    candidates: Sequence[int],
    *,
    seed: int = 0,
    row_folds: int = 3,
    feature_folds: int = 4,
    **options: Any,
) -> ChosenV:
    """Choose v by bi-cross-validation: the smallest that is not worse than the best by more than one standard error.

    The standard error is that of the difference between the two over the row folds. Each candidate costs `row_folds`
    factorisations.

    Args:
        activations: [n d] >= 0.
        candidates: numbers of concepts to try.
        seed: of the folds and of the factorisations.
        row_folds: parts of the rows, each held out once.
        feature_folds: parts of the features, each predicted once from the others.
        options: for `nmf`.

    """
    check_activations(activations)
    activations = activations.detach()
    n, d = activations.shape
    tried = tuple(sorted(set(candidates)))
    if row_folds < 2 or feature_folds < 2 or row_folds > n or feature_folds > d:
        raise InputError(
            f"Activations [{n} {d}] cannot be held out in {row_folds} folds of rows and {feature_folds} of features; "
            "both need at least 2, and no more than there are."
        )
    most = min(n - math.ceil(n / row_folds), d)
    if not tried or tried[0] < 1 or tried[-1] > most:
        raise InputError(f"Candidates for v must lie in 1 to {most} for activations [{n} {d}], but are {tried}.")
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(n, generator=generator).tensor_split(row_folds)
    features = torch.randperm(d, generator=generator).tensor_split(feature_folds)
    errors = torch.empty(row_folds, len(tried), dtype=torch.float64)
    jobs = [(i, j) for i in range(row_folds) for j in range(len(tried))]
    for i, j in track(jobs, "Choosing the number of concepts"):
        kept = torch.cat([part for k, part in enumerate(rows) if k != i]).sort().values
        Q = nmf(activations[kept], tried[j], seed=seed, **options).concepts
        errors[i, j] = _held_out_error(activations[rows[i]], Q, features)
    return ChosenV(tried[_within_one_standard_error(errors)], tried, errors)


def _held_out_error(A: Tensor, Q: Tensor, folds: Sequence[Tensor]) -> float:
    """Predict each fold of features from the others; give the squared error beside ‖A‖²."""
    error = 0.0
    for fold in folds:
        rest = torch.ones(A.shape[1], dtype=torch.bool).index_fill(0, fold, False)
        seen = Q[:, rest].square().sum(1, keepdim=True) >= VISIBLE
        P = nnls(A[:, rest], Q[:, rest] * seen).coefficients
        error += float((A[:, fold] - P @ Q[:, fold]).double().square().sum())
    size = float(A.double().square().sum())
    return error / size if size else 0.0


def _within_one_standard_error(errors: Tensor) -> int:
    """Give the first candidate whose mean distance to the best one is within the standard error of that distance."""
    gap = errors - errors[:, [int(errors.mean(0).argmin())]]  # [folds candidates], paired
    spread = gap.std(0) / len(gap) ** 0.5
    return int((gap.mean(0) <= spread).to(torch.uint8).argmax())
