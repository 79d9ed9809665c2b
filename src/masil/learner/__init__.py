"""Masil, what people use: fit, learn, predict, explain, undo, forget, save and load; and tune."""

from masil.learner.estimator import NotFittedError
from masil.learner.explanation import Explanation
from masil.learner.masil import Masil
from masil.learner.memory import Event, Memory, SessionRecord
from masil.learner.prior import PriorWeight
from masil.learner.tune import Trial, Tuned, tune

__all__ = [
    "Event",
    "Explanation",
    "Masil",
    "Memory",
    "NotFittedError",
    "PriorWeight",
    "SessionRecord",
    "Trial",
    "Tuned",
    "tune",
]
