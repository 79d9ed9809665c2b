"""Non-negative matrix factorisation of activations into coefficients and concepts."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from masil.concepts.nmf_blocks import Blocks, as_blocks, working_dtype
from masil.concepts.nmf_descent import RULES, WINDOW, Descent, descend, settle
from masil.concepts.nmf_gradient import differentiable
from masil.concepts.nmf_init import Init, begin
from masil.errors import InputError, lookup
from masil.hardware import one_thread
from masil.progress import bar

Solver = Literal["auto", "hals", "admm"]
LONG = 1 << 28  # multiplications of all rows with all concepts, from which on threads share these products


class NMFConvergenceWarning(UserWarning):
    """A factorisation has stopped before its objective had settled."""


@final
@dataclass(frozen=True)
class NMFResult:
    """The factors of A ≈ P Q, and how they were reached.

    Attributes:
        concepts: Q [v d] >= 0, rows of unit length.
        coefficients: P [n v] >= 0, which carries the scale; None if it was not asked for.
        objective: ½‖A − PQ‖²_F after each iteration that lowered it; the last is that of the factors given.
        iterations: passes over the rows.
        converged: whether the objective had settled within the tolerance; with gradients, whether the factors satisfy
            the KKT conditions.
        relative_error: ‖A − PQ‖_F / ‖A‖_F, 0 where A = 0.

    """

    concepts: Tensor
    coefficients: Tensor | None
    objective: list[float]
    iterations: int
    converged: bool
    relative_error: float


def nmf(
    A: Tensor | np.ndarray[Any, Any] | Blocks, v: int, *, solver: Solver = "auto", init: Init = "nndsvd",
    seed: int = 0, max_iterations: int = 200, tol: float = 1e-4, coefficients: bool = True,
) -> NMFResult:  # fmt: skip
    """Solve min_{P,Q>=0} ½‖A − PQ‖²_F with v concepts, rows of Q of unit length (Eq. nmf).

    The problem is not convex: this finds a local minimum that depends on where it starts. Of many rows the concepts are
    fitted to a random sample first, and then to all of them, unless they are given; that saves most of the passes.

    Args:
        A: activations [n d] >= 0: a tensor, a numpy array, which may be mapped from a file larger than memory, or
            `Blocks`. Half precision is widened as it is read. With a tensor that requires gradients, P and Q are
            differentiable with respect to it (Eq. del); the factors are then polished in double precision.
        v: how many concepts, at most n and d.
        solver: "hals" updates one concept at a time, exactly; "admm" is AO-ADMM; "auto" is the faster, "hals".
        init: "nndsvd", "random", initial concepts Q [v d], or initial factors (P [n v], Q [v d]).
        seed: of the sample, of the randomised SVD, and of random concepts.
        max_iterations: passes over all rows.
        tol: ten iterations that lower the objective by less than this fraction of it are enough.
        coefficients: whether to give P. If not, P is never held whole, and each pass fits it anew.

    """
    options = (solver, init, seed, max_iterations, tol)
    if isinstance(A, Tensor) and A.requires_grad and torch.is_grad_enabled():
        return _factorise_differentiably(A, v, *options, coefficients)
    return _factorise(as_blocks(A), v, *options, coefficients)


def _factorise(
    source: Blocks, v: int, solver: Solver, init: Init, seed: int, max_iterations: int, tol: float, keep: bool
) -> NMFResult:
    """Check what is asked for, find where to begin, descend, and let P settle at the last Q."""
    _check_options(source, v, max_iterations, tol)
    rule = lookup("NMF solver", solver, {"auto": RULES["hals"], **RULES})
    short = len(source) * source.features * v < LONG
    with one_thread(short), bar("Factorising activations", max_iterations) as advance:
        concepts, factors, energy = begin(source, v, init, seed, rule, keep)
        found = descend(
            source, concepts, factors, rule, energy, max_iterations=max_iterations, tol=tol, advance=advance
        )
        objective = found.objective
        if keep:
            objective[-1] = settle(source, found, factors, rule, energy)
    if not found.converged:
        _warn(len(source), v, found, tol)
    P = torch.cat([rule.update.factor(state).T for state in factors.states]) if keep else None
    Q = found.concepts.to(source.read(0, 1).device, working_dtype(source))
    error = math.sqrt(2 * objective[-1] / energy) if energy else 0.0
    return NMFResult(Q, P, objective, found.iterations, found.converged, error)


def _factorise_differentiably(
    A: Tensor, v: int, solver: Solver, init: Init, seed: int, max_iterations: int, tol: float, keep: bool
) -> NMFResult:
    """Factorise in float64, on the CPU where the device has none, polish, and hand the gradient on to A."""
    dtype = working_dtype(as_blocks(A))
    exact = (A.cpu() if A.device.type == "mps" else A).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NMFConvergenceWarning)  # polishing goes on from there
        found = _factorise(as_blocks(exact), v, solver, init, seed, max_iterations, tol, True)
    P, Q, value, stationary = differentiable(exact, found.concepts)
    size = float(exact.detach().norm())
    return NMFResult(
        concepts=Q.to(dtype).to(A.device),
        coefficients=P.to(dtype).to(A.device) if keep else None,
        objective=[*found.objective, value],
        iterations=found.iterations,
        converged=stationary,
        relative_error=math.sqrt(2 * value) / size if size else 0.0,
    )


def _check_options(source: Blocks, v: int, max_iterations: int, tol: float) -> None:
    n, d = len(source), source.features
    if not 1 <= v <= min(n, d):
        raise InputError(
            f"{v} concepts were asked for, but {n} activations of {d} features have between 1 and {min(n, d)}."
            if min(n, d)
            else f"There are no activations to factorise: they have the shape [{n} {d}]."
        )
    if max_iterations < 1 or not tol >= 0:
        raise InputError(f"NMF needs max_iterations >= 1 and tol >= 0, but got {max_iterations} and {tol}.")


def _warn(n: int, v: int, found: Descent, tol: float) -> None:
    warnings.warn(
        f"The factorisation of {n} activations into {v} concepts stopped after {found.iterations} iterations, of which "
        f"the last {WINDOW} lowered the objective by {found.decrease:.1e} of its value (tol is {tol:.1e}). Raise "
        "`max_iterations` to go on, or `tol` if this is enough.",
        NMFConvergenceWarning,
        stacklevel=4,
    )
