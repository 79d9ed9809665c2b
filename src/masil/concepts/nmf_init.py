"""Where a factorisation begins: given factors, non-negative double SVD or chance, then a fit to a sample."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from masil.concepts.checks import check_values
from masil.concepts.nmf_blocks import Blocks, TensorBlocks, survey
from masil.concepts.nmf_descent import Factors, Rule, descend, unit_rows
from masil.errors import InputError, lookup

Init = Literal["nndsvd", "random"] | Tensor | tuple[Tensor, Tensor]

# Concepts are first fitted to a quarter of the rows, and before that to a quarter of those, down to a few for each
# concept. On 22,500 real activations and 64 concepts that takes as long as ten iterations on all rows, saves forty,
# and ends lower.
SAMPLE_RATIO = 4
ROWS_PER_CONCEPT, SMALLEST_SAMPLE, LARGEST_SAMPLE = 8, 1 << 9, 1 << 16
SAMPLE_ITERATIONS, SAMPLE_TOL = 24, 1e-3
OVERSAMPLING, POWERS = 10, 3


def begin(source: Blocks, v: int, init: Init, seed: int, rule: Rule, keep: bool) -> tuple[Tensor, Factors, float]:
    """Check the activations, and give concepts to begin with, float64 [v d] with unit rows; P, if given; and ‖A‖²_F."""
    if not isinstance(init, str):
        energy, rows = survey(source, torch.empty(0, dtype=torch.int64))
        return *_given(init, source, v, rows.device, rule, keep), energy
    start = lookup("initial factorisation", init, {"nndsvd": nndsvd, "random": random_concepts})
    generator = torch.Generator().manual_seed(seed)
    n = len(source)
    size = sample_size(n, v)
    energy, rows = survey(source, torch.randperm(n, generator=generator)[:size] if size < n else torch.arange(n))

    def fit(rows: Tensor) -> Tensor:
        """Fit concepts to rows in random order: first to the first few of them, then, from there, to all."""
        part = TensorBlocks(rows)
        states = Factors.none(v, keep=True)
        size, _ = survey(part, torch.empty(0, dtype=torch.int64))
        return descend(part, first(rows), states, rule, size, max_iterations=SAMPLE_ITERATIONS, tol=SAMPLE_TOL).concepts

    def first(rows: Tensor) -> Tensor:
        fewer = sample_size(len(rows), v)
        return fit(rows[:fewer]) if fewer < len(rows) else start(rows, v, generator)

    return fit(rows) if size < n else first(rows), Factors.none(v, keep=keep), energy


def sample_size(n: int, v: int) -> int:
    """How many of n rows the concepts are first fitted to; n if a sample is not worth it."""
    size = min(n // SAMPLE_RATIO, LARGEST_SAMPLE)
    return size if size >= max(SMALLEST_SAMPLE, ROWS_PER_CONCEPT * v) else n


def random_concepts(rows: Tensor, v: int, generator: torch.Generator) -> Tensor:
    """Give uniformly random concepts, float64 [v d], with unit rows."""
    Q = torch.rand(v, rows.shape[1], generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(Q, dim=1)


def nndsvd(rows: Tensor, v: int, generator: torch.Generator) -> Tensor:
    """Give the concepts of the non-negative double SVD (Boutsidis & Gallopoulos 2008), float64 [v d], with unit rows.

    Of each rank-one term σ u wᵀ the larger non-negative part is taken, u₊ w₊ᵀ or u₋ w₋ᵀ; only its w is needed here.
    Zeros stay zeros: coordinate descent and ADMM leave them where it pays, unlike multiplicative updates.
    """
    # Randomised subspace iteration: an orthonormal basis of the range of (AᵀA)^POWERS Ω, then the SVD inside it.
    A, d = rows, rows.shape[1]
    basis = torch.randn(d, min(d, v + OVERSAMPLING), generator=generator, dtype=torch.float64)
    for _ in range(POWERS):
        inside = torch.linalg.qr(basis).Q.to(A.dtype).to(A.device)
        basis = (A.T @ (A @ inside)).cpu().double()
    basis = torch.linalg.qr(basis).Q.to(A.dtype).to(A.device)
    projected = A @ basis
    inside = torch.linalg.eigh((projected.T @ projected).cpu().double()).eigenvectors
    inside = inside.flip(1)[:, :v].to(A.dtype).to(A.device)
    u, w = projected @ inside, basis @ inside  # [m v], [d v]; u carries σ, which does not change the choice
    positive = u.clamp_min(0).norm(dim=0) * w.clamp_min(0).norm(dim=0)
    negative = u.clamp_max(0).norm(dim=0) * w.clamp_max(0).norm(dim=0)
    Q = torch.where(positive >= negative, w, -w).clamp_min(0).T.cpu().double()
    # A term that is all rounding may have no positive part: then any direction will do.
    return unit_rows(Q, torch.full_like(Q, d**-0.5))[0]


def _given(
    init: Tensor | tuple[Tensor, Tensor], source: Blocks, v: int, device: torch.device, rule: Rule, keep: bool
) -> tuple[Tensor, Factors]:
    """Check initial factors, and give them with unit concepts."""
    P, Q = init if isinstance(init, tuple) else (None, init)
    Q = _checked("concepts", Q, (v, source.features), device)
    length = Q.cpu().double().norm(dim=1, keepdim=True)
    if not bool((length > 0).all()):
        zero = int((length == 0).nonzero()[0, 0])
        raise InputError(f"Initial concept {zero} is zero in all features; a concept needs a direction.")
    concepts = Q.cpu().double() / length
    if P is None:
        return concepts, Factors.none(v, keep=keep)
    P = _checked("coefficients", P, (len(source), v), device)
    if not keep:
        raise InputError("Initial coefficients were given with coefficients=False, where P is not held; give Q alone.")
    return concepts, Factors.of(P, length[:, 0], source, rule)


def _checked(name: str, factor: object, shape: tuple[int, int], device: torch.device) -> Tensor:
    if not isinstance(factor, Tensor) or not factor.is_floating_point():
        kind = getattr(factor, "dtype", type(factor).__name__)
        raise InputError(f"The initial {name} are {kind}; give a tensor of float32 or float64.")
    if tuple(factor.shape) != shape:
        raise InputError(f"The initial {name} have shape {list(factor.shape)}, but {list(shape)} is needed.")
    if factor.device != device:
        raise InputError(
            f"The initial {name} are on {factor.device} but the activations on {device}; move one to the other."
        )
    check_values(f"initial {name}", factor)
    return factor.detach()
