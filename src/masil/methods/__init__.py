"""What the benchmark compares, behind one interface."""

from masil.methods.alice import Alice
from masil.methods.cec import Cec
from masil.methods.checked import Checked
from masil.methods.d_cosine import DCosine
from masil.methods.d_negcosine import DNegCosine
from masil.methods.eeil import EEIL
from masil.methods.fact import Fact
from masil.methods.fecam import FeCAM
from masil.methods.fixed_classifier import FixedClassifier
from masil.methods.icarl import ICaRL, ICaRLNetwork
from masil.methods.lucir import Lucir
from masil.methods.masil import MasilMethod, MasilPaper, NcEtfCf
from masil.methods.method import Geometry, Keeps, Method, NearestVector, Queries, Samples, Task, state
from masil.methods.nc_fscil import LearnableCe, NcCe, NcFscil
from masil.methods.ranpac import RanPAC
from masil.methods.registry import METHODS, check_parameters, find_method, make, trains_its_own_base
from masil.methods.regularizer import Regularizer
from masil.methods.teen import Teen
