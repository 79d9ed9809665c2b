"""What the benchmark compares, behind one interface."""

from masil.methods.ablation import ROWS, LearnableCe, MasilPaper, NcCe, NcEtfCf
from masil.methods.alice import Alice
from masil.methods.cec import Cec
from masil.methods.d_cosine import DCosine
from masil.methods.d_negcosine import DNegCosine
from masil.methods.eeil import EEIL
from masil.methods.fact import Fact
from masil.methods.fecam import FeCAM
from masil.methods.fixed_classifier import FixedClassifier
from masil.methods.icarl import ICaRL
from masil.methods.lucir import Lucir
from masil.methods.masil import MasilMethod
from masil.methods.method import Method
from masil.methods.nc_fscil import NcFscil
from masil.methods.ranpac import RanPAC
from masil.methods.regularizer import Regularizer
from masil.methods.table import METHODS, check_parameters, find_method, make
from masil.methods.teen import Teen

__all__ = [
    "EEIL",
    "METHODS",
    "ROWS",
    "Alice",
    "Cec",
    "DCosine",
    "DNegCosine",
    "Fact",
    "FeCAM",
    "FixedClassifier",
    "ICaRL",
    "LearnableCe",
    "Lucir",
    "MasilMethod",
    "MasilPaper",
    "Method",
    "NcCe",
    "NcEtfCf",
    "NcFscil",
    "RanPAC",
    "Regularizer",
    "Teen",
    "check_parameters",
    "find_method",
    "make",
]
