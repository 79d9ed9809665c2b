"""What the benchmark compares, behind one interface."""

from masil.methods.alice import Alice
from masil.methods.balanced import BALANCE_SUFFIX, Balanced, balanced
from masil.methods.c_fscil import CFscil
from masil.methods.cec import Cec, CecHeadOnly
from masil.methods.checked import Checked
from masil.methods.class_means import DCosine, DCosineCentred, DNegCosine
from masil.methods.closer import Closer
from masil.methods.data_free_replay import DataFreeReplay
from masil.methods.deep_emd import DeepEmd
from masil.methods.deep_inv import DeepInv
from masil.methods.dsn import Dsn
from masil.methods.eeil import EEIL
from masil.methods.fact import Fact
from masil.methods.fecam import FeCAM, PlainFeCAM
from masil.methods.fixed_classifier import FixedClassifier
from masil.methods.fscil_table import EEILInTables, ICaRLInTables, NCMInTables
from masil.methods.icarl import ICaRL
from masil.methods.idlvq import Idlvq
from masil.methods.limit import Limit
from masil.methods.lucir import Lucir
from masil.methods.masil import MasilMethod
from masil.methods.masil_paper import CfAsWritten, MasilAsWritten
from masil.methods.metafscil import MetaFscil
from masil.methods.method import (
    Geometry,
    Keeps,
    LargestScore,
    Method,
    NearestVector,
    Queries,
    Rehearsal,
    Samples,
    Task,
    state,
)
from masil.methods.mgsvf import MgSvF
from masil.methods.nc_fscil import LearnableCe, NcCe, NcFscil
from masil.methods.orco import OrCo
from masil.methods.ranpac import PlainRanPAC, RanPAC
from masil.methods.registry import METHODS, check_parameters, find_method, make, trains_its_own_base
from masil.methods.regularizer import Regularizer
from masil.methods.sppr import Sppr
from masil.methods.ssfe import SsfeNet
from masil.methods.synthesized import SynthesizedFeatures
from masil.methods.teen import Teen, TunedTeen
from masil.methods.topic import Topic
