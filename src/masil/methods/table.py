"""Every method by name."""

from collections.abc import Callable, Mapping

from masil.methods.masil import MasilMethod
from masil.methods.method import Method
from masil.methods.nearest_mean import NearestMean

METHODS: Mapping[str, Callable[[], Method]] = {"masil": MasilMethod, "nearest-mean": NearestMean}
