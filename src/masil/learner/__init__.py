"""Masil, what people use: fit, learn, predict, explain, undo, forget, save and load; and tune."""

from masil.learner.balance import TRAINED_BALANCE
from masil.learner.confidence import Answers
from masil.learner.estimator import NotFittedError
from masil.learner.explanation import Explanation
from masil.learner.gallery import Crop, nearest_crops
from masil.learner.masil import Masil
from masil.learner.memory import Event, Memory, SessionRecord
from masil.learner.model_file import editing
from masil.learner.onnx_export import export_onnx
from masil.learner.picture import draw
from masil.learner.prior import PriorWeight
from masil.learner.tune import Trial, Tuned, tune
from masil.learner.unknown import Rejector, auroc

__all__ = [
    "TRAINED_BALANCE",
    "Answers",
    "Crop",
    "Event",
    "Explanation",
    "Masil",
    "Memory",
    "NotFittedError",
    "PriorWeight",
    "Rejector",
    "SessionRecord",
    "Trial",
    "Tuned",
    "auroc",
    "draw",
    "editing",
    "export_onnx",
    "nearest_crops",
    "tune",
]
