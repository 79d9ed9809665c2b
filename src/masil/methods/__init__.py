"""What the benchmark compares, behind one interface."""

from masil.methods.masil import MasilMethod
from masil.methods.method import Method
from masil.methods.nearest_mean import NearestMean
from masil.methods.table import METHODS

__all__ = ["METHODS", "MasilMethod", "Method", "NearestMean"]
