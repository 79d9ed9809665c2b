"""Choose what the paper leaves open on base classes that play novel ones: never on test data.

Some base classes are held out of the bank, the covariance and the means, and then taught in one session from a few
shots; images of all classes that no one has learnt from say what works. Several such plays are averaged. Where the
backbone was trained on these classes, those that play novel are not new to it, and what is chosen may not hold for
classes that are.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from torch import Tensor

from masil.errors import InputError, NoEffectWarning, check_seed, lookup
from masil.learner.encoder import BaseSession, Seen, read_base_session
from masil.learner.masil import Masil
from masil.learner.rehearsal import judge, play_novel, true_columns
from masil.learner.settings import Alpha
from masil.progress import track
from masil.protocol import Play, divide

MEASURES = ("harmonic_mean", "accuracy")
SHRINKAGES: Sequence[float | str] = ("sampling", 0.3, 1.0, 3.0)
ALPHAS: Sequence[Alpha] = ("auto", 0.0)
# What else the defaults were chosen among, one parameter at a time; `benchmarks/defaults.py` takes the same values.
VARIED: Mapping[str, Sequence[Any]] = {
    "power": (1.0, 0.25),
    "concepts": (16, 128),
    "calibration": (None, "teen", "both"),
    "teen": (0.1, 0.5),
    "balance": (0.0, 0.25, 0.5, 0.75, 1.0),
}


@final
@dataclass(frozen=True)
class Trial:
    """How one choice of parameters did, on average over plays; shares are between 0 and 1."""

    shrinkage: float | str
    concepts: int
    alpha: Alpha
    bias: float
    accuracy: float
    base: float
    novel: float
    harmonic_mean: float
    changed: dict[str, Any] = field(default_factory=dict)  # other parameters that were not the model's own

    @property
    def parameters(self) -> dict[str, Any]:
        """What was tried, ready for `Masil(**parameters)`."""
        tried = {name: getattr(self, name) for name in ("shrinkage", "concepts", "alpha", "bias")}
        return {**tried, **self.changed}


@final
@dataclass(frozen=True)
class Tuned:
    """The choice, ready for `Masil(**chosen)`, and every trial, best first."""

    chosen: dict[str, Any]
    trials: tuple[Trial, ...]
    measure: str
    plays: int


def tune(
    images: Any,
    labels: Any,
    model: Masil | None = None,
    *,
    shots: int = 5,
    novel: float = 0.4,
    plays: int = 2,
    shrinkage: Sequence[float | str] | None = None,
    concepts: Sequence[int] | None = None,
    alpha: Sequence[Alpha] | None = None,
    bias: Sequence[float] = (0.0, 0.005, 0.01, 0.02, 0.03),
    varied: Mapping[str, Sequence[Any]] | None = None,
    measure: str = "harmonic_mean",
    seed: int = 0,
) -> Tuned:
    """Try combinations of parameters on base images and give the best; `model` says everything that is not tried.

    Args:
        images: of the base session, as for `fit`.
        labels: their classes.
        model: whose backbone, power, form of g and other parameters to use; a `Masil()` if not given. Not changed.
        shots: images of each class that plays novel.
        novel: share of the classes that play novel.
        plays: divisions to average over.
        shrinkage: to try, where g is whitening: "sampling", .3, 1 and 3 if not given.
        concepts: to try; the model's own if not given.
        alpha: to try, where concepts take part: "auto" and 0 if not given.
        bias: to try.
        varied: values of further parameters, such as `VARIED`: each is tried alone, around the best of all combinations
            of those above.
        measure: what decides, "harmonic_mean" (of base and novel accuracy) or "accuracy".
        seed: of the divisions.

    """
    lookup("measure", measure, dict.fromkeys(MEASURES))
    for name, count in (("shots", shots), ("plays", plays)):
        if count < 1:
            raise InputError(f"`{name}` is {count}, but must be at least 1.")
    check_seed(seed)
    model = Masil() if model is None else model
    _refuse_aim(model)
    seen: Seen | None = {} if varied else None
    data = read_base_session(model, images, labels, seen)
    shrinkages = _tried("shrinkage", shrinkage, SHRINKAGES, model, model.embedding == "whitening")
    alphas = _tried("alpha", alpha, ALPHAS, model, data.settings.with_concepts)
    divisions = [divide(data.shots.codes, shots, novel, seed + number) for number in range(plays)]
    counts = tuple(dict.fromkeys(concepts or (model.concepts,)))
    trials = _play(data, divisions, shrinkages, counts, alphas, bias=bias)
    best = max(trials, key=lambda trial: float(getattr(trial, measure)))
    for changed in _one_at_a_time(varied or {}, model, best):
        other = Masil(**{**model.get_params(), **best.parameters, **changed})
        _refuse_aim(other)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoEffectWarning)  # without concepts, say, α has none
            data = read_base_session(other, images, labels, seen)
        alone = _play(data, divisions, (other.shrinkage,), (other.concepts,), (other.alpha,), bias=(other.bias,))
        trials += [replace(trial, changed=changed) for trial in alone]
    trials.sort(key=lambda trial: -getattr(trial, measure))
    return Tuned(trials[0].parameters, tuple(trials), measure, plays)


def _play(
    data: BaseSession, divisions: Sequence[Play], shrinkages: Sequence[float | str], counts: Sequence[int],
    alphas: Sequence[Alpha], *, bias: Sequence[float],
) -> list[Trial]:  # fmt: skip
    """Try all combinations of these values in every division, and average over the divisions."""
    sums: dict[tuple[Any, ...], Tensor] = {}
    for play, count in track(list(itertools.product(divisions, counts)), "Playing novel classes"):
        tried = replace(data.settings, concepts=count, alpha="auto" if "auto" in alphas else alphas[0], bias=0.0)
        columns = true_columns(data, play)
        for settings, scores in play_novel(data, play, tried, shrinkages, alphas=alphas):
            for b in bias:
                key = (settings.shrinkage, count, settings.alpha, b)
                biased = scores.values.clone()
                biased[:, : len(play.base)] -= b
                sums[key] = sums.get(key, 0) + judge(biased, columns, len(play.base))
    return [Trial(*key, *(total / len(divisions)).tolist()) for key, total in sums.items()]


def _refuse_aim(model: Masil) -> None:
    if model.aim is not None:
        raise InputError(
            f"`aim` is {model.aim!r}, but here `measure` says what decides, for a given balance; leave it out."
        )


def _one_at_a_time(varied: Mapping[str, Sequence[Any]], model: Masil, best: Trial) -> Iterator[dict[str, Any]]:
    """Yield each value that differs from what was played; TEEN's weight is tried where TEEN takes part."""
    played = {**model.get_params(), **best.parameters}
    for name, values in varied.items():
        for value in values:
            changed = {name: value}
            if name == "teen" and played["calibration"] not in ("teen", "both"):
                changed = {"calibration": "both", name: value}
            if any(played[key] != value for key, value in changed.items()):
                yield changed


def _tried(name: str, given: Sequence[Any] | None, usual: Sequence[Any], model: Masil, counts: bool) -> Sequence[Any]:
    """Give the values to try of a parameter: those given, the usual ones, or the model's own where it has no effect."""
    if counts:
        return usual if given is None else given
    if given is not None:
        text = f"`{name}` is not tried: with this model's embedding and calibration it has no effect."
        warnings.warn(text, NoEffectWarning, stacklevel=3)
    return (getattr(model, name),)
