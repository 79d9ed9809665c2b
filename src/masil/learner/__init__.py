"""Masil, what people use: fit, learn, predict, explain, undo, forget, save and load; and tune.

`core` holds the learner as three functions on values, `fit_base`, `teach` and `score`; `Masil` adds inputs, history and
the model file.
"""

from masil.learner.answers import (
    Answer,
    Answers,
    ClassResult,
    Evaluation,
    KnownClass,
    ModelCard,
    Neighbour,
    NeverTaught,
    Ranked,
    Taught,
    TaughtClass,
)
from masil.learner.calibration import mean_by_class, offsets
from masil.learner.core import Base, Scores, fit_base, score, teach
from masil.learner.estimator import NotFittedError
from masil.learner.explain import Crop, Explanation
from masil.learner.masil import Masil
from masil.learner.model_file import edit_model
from masil.learner.onnx import export_onnx
from masil.learner.picture import draw_explanation
from masil.learner.prior import Concepts, PriorWeight, fit_concepts
from masil.learner.rehearsal import Rehearsed, judge, operating_points
from masil.learner.rows import ClassRows, Event, SessionRecord, Shots, take_power
from masil.learner.settings import AIMS, STRENGTHS, TRAINED_BALANCE, Settings, core_settings, for_trained
from masil.learner.tune import VARIED, Trial, Tuned, tune
from masil.learner.unknown import UnknownDetector, auroc
from masil.learner.vectors import borrowed
