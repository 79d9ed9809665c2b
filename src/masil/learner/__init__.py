"""Masil, what people use: fit, learn, predict, explain, undo, forget, save and load; and tune.

`core` holds the learner as three functions on values, `fit_base`, `teach` and `score`; `Masil` adds inputs, history and
the model file.
"""

from masil.learner.aims import AIMS, STRENGTHS, Rehearsed, judged, operating_points, refuse_aim_of_trained
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
from masil.learner.base_concepts import Concepts, fit_concepts
from masil.learner.calibration import TRAINED_BALANCE
from masil.learner.core import Base, Scores, fit_base, score, teach
from masil.learner.estimator import NotFittedError
from masil.learner.explain import Crop, Explanation
from masil.learner.history import Event, SessionRecord
from masil.learner.masil import Masil
from masil.learner.model_file import edit_model
from masil.learner.model_file import edit_model as editing  # its old name
from masil.learner.onnx import export_onnx
from masil.learner.picture import draw_explanation
from masil.learner.prior import PriorWeight
from masil.learner.rows import ClassRows
from masil.learner.settings import Rules, Settings
from masil.learner.shots import Shots, take_power
from masil.learner.tune import VARIED, Trial, Tuned, tune
from masil.learner.unknown import UnknownDetector, auroc
