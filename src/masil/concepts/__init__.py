"""Concepts: non-negative factors of activations, exact and differentiable, and what they explain."""

from masil.concepts.attribution import HeatMaps, Target, gradient_importance, gradient_maps, location_maps
from masil.concepts.bank import BankRecord, ConceptBank, Strongest
from masil.concepts.nmf import NMFConvergenceWarning, NMFResult, nmf
from masil.concepts.nmf_blocks import Blocks
from masil.concepts.nmf_gradient import NMFGradientWarning
from masil.concepts.nnls import NNLSResult, nnls
