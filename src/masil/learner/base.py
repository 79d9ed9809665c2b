"""What the base session leaves for all later ones: g, the concept bank, the prior's weight and how sure to be."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.collapse import Embedding, LinearMap, Whitening, class_means
from masil.concepts import ConceptBank
from masil.errors import InputError, lookup
from masil.learner.balance import expected_of_held_out, offsets
from masil.learner.confidence import hold_out, temperature
from masil.learner.memory import unit
from masil.learner.prior import PriorWeight, measure
from masil.learner.unknown import Rejector, fit_rejector

FOLDS = 3  # parts of the base classes that play novel
FORMS = ("whitening", "linear")


@final
@dataclass(frozen=True, eq=False)
class Base:
    """The frozen part of a learner. Bank, coefficients and g all see a^p, the power taken once at the door."""

    power: float
    embedding: Embedding
    bank: ConceptBank
    prior: PriorWeight | None  # None: α was given as a number
    temperature: float
    framed: bool  # whether the base classes' vectors were given, a frame's or learnt ones, and are not their means
    rejector: Rejector | None = None  # None: too few images to tell what was taught from what was not

    @property
    def features(self) -> int:
        """How many activations an image has."""
        return self.embedding.features_in

    def door(self, activations: Tensor) -> Tensor:
        """Give a^p."""
        return powered(activations, self.power)

    def embed(self, activations: Tensor) -> Tensor:
        """Give embeddings of unit length [n d'] of activations [n d]."""
        with torch.no_grad():
            return self.embedding(self.door(activations))


def powered(activations: Tensor, power: float) -> Tensor:
    """Give a^p for a >= 0, with the gradient 0 instead of infinite where a = 0."""
    if power == 1:
        return activations
    positive = activations > 0
    return torch.where(positive, torch.where(positive, activations, 1).pow(power), 0)


def make_embedding(form: str | Embedding, x: Tensor, labels: Tensor, shrinkage: float | str) -> Embedding:
    """Give g: whitening of x = a^p by its classes' scatter, the identity, or one that was trained before."""
    if isinstance(form, Embedding):
        if form.features_in != x.shape[1]:
            raise InputError(
                f"The embedding takes {form.features_in} features but the activations have {x.shape[1]}; "
                "was it trained with the same backbone?"
            )
        return form.eval().requires_grad_(False)
    lookup("form of embedding", form, dict.fromkeys(FORMS))
    if form == "linear":
        return LinearMap(x.shape[1])
    return Whitening.fit(x, labels, shrinkage)  # type: ignore[arg-type]  # it says what it takes


def fit_bank(rows: Tensor, concepts: int, seed: int, **options: float) -> ConceptBank:
    """Fit at most `concepts` concepts, fewer where rows or features are fewer."""
    return ConceptBank.fit(rows, min(concepts, *rows.shape), seed=seed, **options)


@torch.no_grad()
def reconstruct_held_out(
    x: Tensor, labels: Tensor, rows: Tensor, row_labels: Tensor, concepts: int, seed: int
) -> Tensor:
    """Give P Q [n d] of every base image x, by a bank of rows of which none is of the image's class.

    The classes are divided into folds, each reconstructed by the concepts of the others, as novel classes will be.
    """
    found = torch.empty_like(x)
    classes = torch.unique(labels)
    order = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))]
    for fold in order.tensor_split(min(FOLDS, len(order))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these banks are to be like the real one, not perfect
            bank = fit_bank(rows[~torch.isin(row_labels, fold)], concepts, seed, tol=1e-3)
        inside = torch.isin(labels, fold)
        found[inside] = bank.reconstruct(x[inside])
    return found


@torch.no_grad()
def measure_prior(embedding: Embedding, x: Tensor, reconstructed: Tensor, labels: Tensor, seed: int) -> PriorWeight:
    """Measure the prior's weight among embeddings."""
    return measure(embedding(x), embedding(reconstructed), labels, seed=seed)


@torch.no_grad()
def rehearse(
    x: Tensor, labels: Tensor, embedding: str | Embedding, shrinkage: float | str, vectors: Tensor | None, held: Tensor
) -> Tensor:
    """Learn a base session without the images `held` bool [n], and give their cosines [m k] to its classes."""
    kept, own = x[~held], labels[~held]
    g = make_embedding(embedding, kept, own, shrinkage)
    w = class_means(g(kept), own) if vectors is None else vectors
    return g(x[held]) @ unit(w).T


@final
@dataclass(frozen=True, eq=False)
class Calibration:
    """What images that nothing was learnt from say of the base session."""

    temperature: float
    expected: Tensor  # [k], the score that an image of each class gets from it
    rejector: Rejector | None


@torch.no_grad()
def calibrate(
    x: Tensor,
    labels: Tensor,
    embedding: str | Embedding,
    shrinkage: float | str,
    vectors: Tensor | None,
    balance: float,
    seed: int,
) -> Calibration:
    """Learn a base session without some images; on those, find how sure to be of a score, and what is unknown."""
    held = hold_out(labels, seed)
    cosines, truth = rehearse(x, labels, embedding, shrinkage, vectors, held), labels[held]
    expected = expected_of_held_out(cosines, truth, int(labels.max()) + 1)
    scores = cosines - balance * offsets(expected, torch.ones(len(expected), dtype=torch.bool))
    rejector = fit_rejector(
        x, labels, held, lambda rows, codes: make_embedding(embedding, rows, codes, shrinkage), vectors, seed
    )
    return Calibration(temperature(scores, truth), expected, rejector)
