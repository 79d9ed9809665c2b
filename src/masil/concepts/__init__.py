"""Concepts: non-negative factors of activations, exact and differentiable, and what they explain."""

from masil.concepts.attribution import HeatMaps, Target, gradient_maps, location_maps
from masil.concepts.bank import ConceptBank
from masil.concepts.bank_record import BankRecord, Examples, Strongest
from masil.concepts.importance import gradient_importance
from masil.concepts.nmf import NMFConvergenceWarning, NMFResult, nmf
from masil.concepts.nnls import nnls
from masil.concepts.nnls_gram import NNLSResult

__all__ = [
    "BankRecord",
    "ConceptBank",
    "Examples",
    "HeatMaps",
    "NMFConvergenceWarning",
    "NMFResult",
    "NNLSResult",
    "Strongest",
    "Target",
    "gradient_importance",
    "gradient_maps",
    "location_maps",
    "nmf",
    "nnls",
]
