"""The concepts of the base session, and base images as banks reconstruct them that have not seen their classes.

The prior's weight follows from the latter. It hardly depends on how well those banks are fitted. Begun with the
concepts of all classes, and fitted to a sample of the others, they give a weight within .003 of that of banks which
begin from nothing and are fitted to all rows: on activations of CIFAR-100 (in an eighth of the time), of CUB-200 and of
written characters. Stopped earlier, at a tolerance of 1e-2, they would still know something of the classes held out:
with few rows and few concepts the weight came out too large, by up to .06.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.concepts import ConceptBank
from masil.learner.settings import Settings
from masil.learner.shots import Shots
from masil.protocol import class_folds, some_of_each

FOLDS = 3  # parts of the base classes that play novel
MEASURED = 100  # images of a class that are reconstructed, at most
ROWS_PER_CONCEPT = 32  # that a bank of the other classes is fitted to
TOLERANCE_OF_OTHERS, ITERATIONS_OF_OTHERS = 1e-3, 32  # of the factorisations by which the prior is measured


@final
@dataclass(frozen=True, eq=False)
class Concepts:
    """The concept bank, and base images reconstructed by banks that had not seen their classes."""

    bank: ConceptBank
    measured: Tensor | None = None  # bool [n], which base images; None where the prior's weight is not measured
    held_out: Tensor | None = None  # [m d], their reconstructions


@torch.no_grad()
def fit_concepts(shots: Shots, settings: Settings, crops: Tensor | None = None) -> Concepts:
    """Fit the bank on the base images, or on as many `crops` [n·c d] of each, image by image.

    To measure how much to trust it, the classes are divided into folds, and each fold is reconstructed by concepts of
    the others, as novel classes will be.
    """
    rows = shots.x if crops is None else crops
    v = min(settings.concepts, *rows.shape)  # fewer than asked for where rows or features are fewer
    bank = ConceptBank.fit(rows, v, seed=settings.seed, max_iterations=1000)
    if not settings.measures_prior:
        return Concepts(bank)
    row_codes = shots.codes.repeat_interleave(len(rows) // len(shots.x))
    generator = torch.Generator().manual_seed(settings.seed)
    folds = class_folds(shots.codes, FOLDS, generator)
    measured = some_of_each(shots.codes, lambda n: min(n, MEASURED), generator)
    held_out = torch.empty_like(shots.x)
    for fold in folds:
        others = _bank_of_others(bank, rows[~torch.isin(row_codes, fold)], settings.seed)
        inside = measured & torch.isin(shots.codes, fold)
        held_out[inside] = others.reconstruct(shots.x[inside])
    return Concepts(bank, measured, held_out[measured])


def _bank_of_others(bank: ConceptBank, rows: Tensor, seed: int) -> ConceptBank:
    """Fit a bank like this one to some of the rows, beginning with its concepts where the rows are enough for them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is to be like the real one, not perfect
        if len(rows) < bank.v:
            return ConceptBank.fit(rows, min(rows.shape), seed=seed, tol=TOLERANCE_OF_OTHERS)
        some = ROWS_PER_CONCEPT * bank.v
        return bank.refit(rows, rows=some, seed=seed, tol=TOLERANCE_OF_OTHERS, max_iterations=ITERATIONS_OF_OTHERS)
