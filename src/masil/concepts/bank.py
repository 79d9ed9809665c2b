"""The concept bank: v non-negative directions Q whose mixtures P Q the activations are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from masil.backbones import ActivationStore, Backbone, extract
from masil.concepts.attribution import Target
from masil.concepts.checks import blocks, check_activations, check_values
from masil.concepts.nmf import nmf
from masil.concepts.nmf_blocks import Blocks, as_blocks, survey
from masil.concepts.nnls import nnls
from masil.data import Images, random_crops
from masil.errors import InputError

HELD_ENTRIES = 1 << 26  # of P during a fit: 256 MB in single precision


@final
@dataclass(frozen=True)
class BankRecord:
    """How a bank came about."""

    rows: int  # activations it was fitted on
    seed: int
    iterations: int
    converged: bool
    objective: float  # ½‖A − PQ‖²_F at the end of the fit
    backbone: str | None = None  # the fingerprint of the backbone, where the bank was fitted on images
    crops: int | None = None  # of each image
    side: int | None = None  # of a crop, in input pixels


@final
@dataclass(frozen=True)
class Strongest:
    """The rows that show each concept most, from most to least."""

    rows: Tensor  # int64 [v m]
    coefficients: Tensor  # [v m]


@final
@dataclass(frozen=True, eq=False)
class ConceptBank:
    """Concepts Q [v d], rows of unit length, >= 0; with how they were found."""

    concepts: Tensor
    record: BankRecord

    def __post_init__(self) -> None:
        Q = self.concepts
        if Q.ndim != 2 or 0 in Q.shape or not Q.is_floating_point():
            raise InputError(f"Concepts must be floating-point [v d], but are {Q.dtype} {list(Q.shape)}.")
        check_values("concepts", Q)

    @classmethod
    def fit(
        cls, activations: Tensor | np.ndarray[Any, Any] | Blocks, v: int, *, rows: int | None = None, seed: int = 0,
        **options: Any,
    ) -> Self:  # fmt: skip
        """Factorise activations [n d] >= 0 into P Q with v concepts (Eq. nmf); `options` go to `nmf`.

        The activations may be mapped from a file larger than memory. With `rows`, the bank is fitted to so many of
        them, drawn by the seed; all are checked. P, which the bank does not keep, is held during the fit as long as it
        is small, which is faster.
        """
        if rows is not None and rows < len(activations):
            chosen = torch.randperm(len(activations), generator=torch.Generator().manual_seed(seed))[:rows]
            activations = survey(as_blocks(activations), chosen.sort().values)[1]
        options = {"coefficients": len(activations) * v <= HELD_ENTRIES} | options
        with torch.no_grad():
            found = nmf(activations, v, seed=seed, **options)
        record = BankRecord(len(activations), seed, found.iterations, found.converged, float(found.objective[-1]))
        return cls(found.concepts, record)

    def refit(self, activations: Tensor | np.ndarray[Any, Any] | Blocks, **options: Any) -> Self:
        """Fit as many concepts to other activations, beginning with these: soon done where both are much alike.

        `options` go to `fit`.
        """
        return self.fit(activations, self.v, init=self.concepts, **options)

    @classmethod
    def from_images(
        cls, images: Images, backbone: Backbone, v: int, *, crops: int = 10, side: int = 18, seed: int = 0,
        store: ActivationStore | None = None, engine: str = "auto", device: str = "auto", **options: Any,
    ) -> Self:  # fmt: skip
        """Fit a bank on random crops τ(x) of the images.

        Args:
            images: the base session's.
            backbone: gives the activations, and says how images are framed.
            v: number of concepts; the paper takes 64, and 72 for CUB-200.
            crops: of each image.
            side: of a crop, in framed pixels; the paper takes 18 of 32, and 64 of 224 for CUB-200.
            seed: of the crops and of the factorisation.
            store: where the crops' activations are kept; without one they stay in memory.
            engine: that runs the backbone, as for `extract`.
            device: that it runs on.
            options: for `nmf`.

        """
        squares = random_crops(images, backbone.framing, crops, side, seed=seed)
        run = extract if store is None else store.get
        activations = run(backbone, squares, engine=engine, device=device)
        bank = cls.fit(activations, v, seed=seed, **options)
        return replace(bank, record=replace(bank.record, backbone=backbone.fingerprint(), crops=crops, side=side))

    @property
    def v(self) -> int:
        """How many concepts there are."""
        return self.concepts.shape[0]

    @property
    def features(self) -> int:
        """How many features an activation has."""
        return self.concepts.shape[1]

    def to(self, device: torch.device | str) -> Self:
        """Give the same bank with its concepts on another device."""
        return replace(self, concepts=self.concepts.to(device))

    def coefficients(self, activations: Tensor) -> Tensor:
        """Give P [n v], argmin_{P>=0} ½‖A − PQ‖² (Eq. inf), differentiable with respect to the activations."""
        if activations.device != self.concepts.device:
            raise InputError(
                f"The activations are on {activations.device} but the concept bank on {self.concepts.device}; "
                f"use bank.to('{activations.device}')."
            )
        check_activations(activations, self.features)
        return nnls(activations, self.concepts.to(activations.dtype)).coefficients

    def reconstruct(self, activations: Tensor) -> Tensor:
        """Give P Q [n d], the activations as far as concepts explain them (Eq. hi)."""
        return self.coefficients(activations) @ self.concepts.to(activations.dtype)

    def relative_error(self, activations: Tensor) -> float:
        """Give ‖A − PQ‖_F / ‖A‖_F, and 0 for activations that are all zero."""
        error = size = 0.0
        with torch.no_grad():
            for _, block in blocks(activations):
                error += float((block - self.reconstruct(block)).double().square().sum())
                size += float(block.double().square().sum())
        return math.sqrt(error / size) if size else 0.0

    def mean_cosine(self, *, centred: bool = False) -> float:
        """Give the mean cosine between two different concepts.

        Concepts >= 0 have plain cosines >= 0. Centred, with the mean concept subtracted first, the value hardly depends
        on the concepts: any centred set of equal norms has −1/(v − 1), so it says little about the bank.
        """
        if self.v < 2:
            raise InputError("The mean cosine needs at least two concepts, but the bank has one.")
        Q = self.concepts.double()
        unit = functional.normalize(Q - Q.mean(0) if centred else Q, dim=1)
        total = unit.sum(0).square().sum() - unit.square().sum()  # Σ_{i≠j} c_i·c_j = ‖Σ c‖² − Σ ‖c‖²
        return float(total) / (self.v * (self.v - 1))

    def nearest(self, activations: Tensor, count: int = 8) -> Strongest:
        """Give the `count` rows of activations with the largest coefficients of each concept; of equals, the first."""
        if not 1 <= count <= len(activations):
            raise InputError(f"The {count} nearest of {len(activations)} activations were asked for.")
        rows = torch.empty(self.v, 0, dtype=torch.int64)
        best = torch.empty(self.v, 0, dtype=activations.dtype)
        for start, block in blocks(activations):
            with torch.no_grad():
                best = torch.cat([best, self.coefficients(block).T.cpu()], 1)
            rows = torch.cat([rows, torch.arange(start, start + len(block)).expand(self.v, -1)], 1)
            best, order = best.sort(dim=1, descending=True, stable=True)
            best, rows = best[:, :count], rows.gather(1, order[:, :count])
        return Strongest(rows, best)

    def target(self, concept: int) -> Target:
        """Give the coefficient of one concept as a score of activations, for heat maps."""
        if not 0 <= concept < self.v:
            raise InputError(f"Concept {concept} was asked for, but the bank has concepts 0 to {self.v - 1}.")
        return lambda activations: self.coefficients(activations)[:, concept]
