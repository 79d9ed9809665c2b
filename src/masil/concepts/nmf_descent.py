"""Alternating descent of ½‖A − PQ‖² in one pass over the rows per iteration, with extrapolated concepts (Eq. nmf)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import final

import torch
from torch import Tensor

from masil.concepts.nmf_blocks import Blocks, block_length, block_starts, read_block, working_dtype
from masil.concepts.nmf_updates import Coordinates, Splitting, Update, ridge_start
from masil.hardware import share_out

# P enters the rest of the work only through PᵀP [v v] and PᵀA [v d], which one pass over the rows of A accumulates.
# These, Q and the objective are small: they live on the CPU in double precision, whatever the data, so that
#     ½‖A − PQ‖² = ½‖A‖² − ⟨PᵀA, Q⟩ + ½⟨PᵀP, QQᵀ⟩
# loses no more to cancellation than the products themselves have lost. Rows of Q have unit length at all times; the
# lengths that the update of Q gives are P's, which takes them up when it is next seen.
#
# Q is extrapolated before each pass (Ang & Gillis 2019): Y = max(0, Q + β(Q − Q₋)), and P is fitted to Y. A pass that
# does not lower the objective is rejected: Q stays, and the next pass is plain (β = 0). P need not be restored: with
# enough steps at a given Q it is argmin_P, no worse than any P it ever was, and each rejection doubles the steps.


@final
@dataclass(frozen=True)
class Rule:
    """How one factor is lowered, and how often."""

    update: Update
    warm_steps: int  # on P, from the P of the pass before
    cold_steps: int  # on P, from nothing
    concept_steps: int  # on Q


RULES = {
    "hals": Rule(Coordinates(), warm_steps=3, cold_steps=6, concept_steps=6),
    "admm": Rule(Splitting(), warm_steps=8, cold_steps=32, concept_steps=8),
}

BLOCKS_HELD = 8  # of A at one time, at most, each on a thread of its own
TURNS = 4  # blocks for each thread before their sums are added up
WINDOW = 10  # iterations over which the decrease of the objective is judged
RETRIES = 3  # plain passes without gain after which rounding is all that is left


@final
@dataclass
class Momentum:
    """How far Q is extrapolated: further while it goes well, less after a rejection, and not at all right after one."""

    beta: float = 0.7
    ceiling: float = 1.0
    resting: bool = True
    failures: int = 0  # plain passes in a row without gain

    def ahead(self, Q: Tensor, before: Tensor) -> Tensor:
        """Y = max(0, Q + β(Q − Q₋)), with unit rows."""
        return Q if self.resting else unit_rows((Q + self.beta * (Q - before)).clamp_(min=0), Q)[0]

    def accept(self) -> None:
        """Grow β up to its ceiling, and the ceiling up to 1."""
        if not self.resting:
            self.beta, self.ceiling = min(self.ceiling, 1.05 * self.beta), min(1.0, 1.02 * self.ceiling)
        self.resting, self.failures = False, 0

    def reject(self) -> None:
        """What β was is its ceiling now."""
        if self.resting:
            self.failures += 1
        else:
            self.beta, self.ceiling = self.beta / 1.5, self.beta
        self.resting = True


@final
@dataclass
class Factors:
    """P, as states of its blocks, transposed, or not kept at all; and the lengths its columns have yet to take up."""

    keep: bool
    states: list[Tensor]
    scale: Tensor  # float64 [v]

    @classmethod
    def none(cls, v: int, *, keep: bool) -> Factors:
        """No P yet."""
        return cls(keep, [], torch.ones(v, dtype=torch.float64))

    @classmethod
    def of(cls, P: Tensor, scale: Tensor, source: Blocks, rule: Rule) -> Factors:
        """P [n v] as it is given, in the blocks that `source` is read in."""
        blocks = torch.split(P.to(working_dtype(source)), block_length(source))
        return cls(True, [rule.update.begin(rows.T) for rows in blocks], scale)


@final
@dataclass(frozen=True)
class Descent:
    """Where a descent has ended. `objective` has the value after each iteration that was accepted."""

    concepts: Tensor  # float64 [v d], unit rows
    objective: list[float]
    iterations: int
    converged: bool
    decrease: float  # of the objective over the last WINDOW iterations, relative


def descend(
    source: Blocks,
    concepts: Tensor,
    factors: Factors,
    rule: Rule,
    energy: float,
    *,
    max_iterations: int,
    tol: float,
    advance: Callable[[float], None] = lambda _: None,
) -> Descent:
    """Lower ½‖A − PQ‖² from Q = `concepts` until WINDOW iterations lower it by less than `tol` of its value.

    Args:
        source: the activations A.
        concepts: float64 [v d], unit rows, >= 0.
        factors: P; cold where it has no states yet. Changed in place.
        rule: how to update each factor.
        energy: ‖A‖²_F.
        max_iterations: passes over the rows, rejected ones included.
        tol: of the relative decrease.
        advance: told of each pass.

    """
    Q = before = concepts
    update, state = rule.update, rule.update.begin(concepts)
    floor = 8 * torch.finfo(working_dtype(source)).eps * energy
    momentum, objective = Momentum(), [math.inf]
    for iteration in range(1, max_iterations + 1):
        Y = momentum.ahead(Q, before)
        PP, PA = lower_coefficients(source, Y, factors, rule, patience=2**momentum.failures)
        new = update.factor(state)
        new.copy_(Y)
        update.lower(state, PP, PA, rule.concept_steps)
        value = value_of(energy, PP, PA, new)
        advance(1)
        if value < objective[-1]:
            before, (Q, factors.scale) = Q, unit_rows(new, Y)
            objective.append(value)
            momentum.accept()
        else:
            momentum.reject()
        decrease = 1 - objective[-1] / objective[-1 - WINDOW] if len(objective) > WINDOW else math.inf
        if decrease <= tol or objective[-1] <= floor or momentum.failures == RETRIES:
            return Descent(Q, objective[1:], iteration, True, decrease)
    return Descent(Q, objective[1:], max_iterations, False, decrease)


def lower_coefficients(
    source: Blocks, Q: Tensor, factors: Factors, rule: Rule, patience: int = 1
) -> tuple[Tensor, Tensor]:
    """Lower ½‖A − PQ‖² in P, block by block, and give PᵀP [v v] and PᵀA [v d]."""
    PP, PA = torch.zeros(len(Q), len(Q), dtype=torch.float64), torch.zeros(Q.shape, dtype=torch.float64)
    warm = bool(factors.states)
    steps = patience * (rule.warm_steps if warm else rule.cold_steps)

    starts, reading = block_starts(source), Lock()  # a source need not bear to be read by two threads

    def lower(number: int) -> tuple[Tensor | None, Tensor, Tensor]:
        """Lower one block; give its P, transposed, if it is new and kept, and what it adds to both sums."""
        with reading:
            block = read_block(source, starts[number])
        q, G, scale = (small.to(block.dtype).to(block.device) for small in (Q, Q @ Q.T, factors.scale))
        C = q @ block.T
        state = factors.states[number].mul_(scale[:, None]) if warm else rule.update.begin(ridge_start(G, C))
        rule.update.lower(state, G, C, steps)
        X = rule.update.factor(state)
        kept = state if factors.keep and not warm else None
        return kept, (X @ X.T).cpu().double(), (X @ block).cpu().double()

    threads, numbers = min(torch.get_num_threads(), BLOCKS_HELD), range(len(starts))
    alone = len(starts) == 1 or source.read(0, 1).device.type != "cpu"
    turn = TURNS * threads
    for some in (numbers[first : first + turn] for first in range(0, len(numbers), turn)):
        for state, XX, XA in map(lower, some) if alone else share_out(lower, some, threads):
            PP += XX
            PA += XA
            if state is not None:
                factors.states.append(state)
    factors.scale = torch.ones_like(factors.scale)
    return PP, PA


def settle(source: Blocks, found: Descent, factors: Factors, rule: Rule, energy: float) -> float:
    """Bring P to the concepts found, and give the objective there, which is not above the last one."""
    for doubling in range(1, RETRIES + 1):
        PP, PA = lower_coefficients(source, found.concepts, factors, rule, patience=2**doubling)
        if (value := value_of(energy, PP, PA, found.concepts)) <= found.objective[-1]:
            return value
    return value


def value_of(energy: float, PP: Tensor, PA: Tensor, Q: Tensor) -> float:
    """½‖A − PQ‖² = ½‖A‖² − ⟨PᵀA, Q⟩ + ½⟨PᵀP, QQᵀ⟩."""
    return max(0.0, 0.5 * energy - float((PA * Q).sum()) + 0.5 * float((PP * (Q @ Q.T)).sum()))


def unit_rows(Q: Tensor, former: Tensor) -> tuple[Tensor, Tensor]:
    """Give unit rows and their lengths. A row that has become zero keeps its former direction, at length zero."""
    length = Q.norm(dim=1)
    alive = (length > 0)[:, None]
    return torch.where(alive, Q / length[:, None], former), length
