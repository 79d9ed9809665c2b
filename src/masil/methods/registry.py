"""Every method by name, and ways to make one: by its name, or as a class of somebody's own file."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from masil.errors import InputError, lookup, suggest
from masil.methods.alice import Alice, AliceLoss
from masil.methods.balanced import BALANCE_SUFFIX, balanced
from masil.methods.c_fscil import CFscil
from masil.methods.cec import Cec, CecHeadOnly
from masil.methods.class_means import DCosine, DCosineCentred, DNegCosine
from masil.methods.closer import Closer, CloserLoss
from masil.methods.data_free_replay import DataFreeReplay
from masil.methods.deep_emd import DeepEmd
from masil.methods.deep_inv import DeepInv
from masil.methods.dsn import Dsn
from masil.methods.eeil import EEIL
from masil.methods.fact import Fact, FactLoss
from masil.methods.fecam import FeCAM, PlainFeCAM
from masil.methods.fixed_classifier import FixedClassifier
from masil.methods.fscil_table import EEILInTables, ICaRLInTables, NCMInTables
from masil.methods.icarl import ICaRL, ICaRLLoss
from masil.methods.idlvq import Idlvq, IdlvqLoss
from masil.methods.limit import Limit, LimitLoss
from masil.methods.lucir import Lucir
from masil.methods.masil import MasilMethod
from masil.methods.masil_paper import CfAsWritten, MasilAsWritten
from masil.methods.metafscil import MetaFscil
from masil.methods.method import Method
from masil.methods.mgsvf import MgSvF
from masil.methods.nc_fscil import LearnableCe, NcCe, NcFscil
from masil.methods.orco import OrCo
from masil.methods.ranpac import PlainRanPAC, RanPAC
from masil.methods.regularizer import Regularizer
from masil.methods.sppr import Sppr
from masil.methods.ssfe import SsfeLoss, SsfeNet
from masil.methods.synthesized import SynthesizedFeatures
from masil.methods.teen import Teen, TunedTeen
from masil.methods.topic import Topic, TopicLoss
from masil.registry import Registry
from masil.storage import fits
from masil.training import LOSSES

_OWN: tuple[type[Method], ...] = (
    MasilMethod, MasilAsWritten, CfAsWritten, NcFscil, NcCe, LearnableCe, DCosine, DCosineCentred, DNegCosine,
    FixedClassifier, Regularizer, Cec, CecHeadOnly, Teen, TunedTeen, FeCAM, PlainFeCAM, RanPAC, PlainRanPAC, Alice,
    Fact, ICaRL, EEIL, Lucir, ICaRLInTables, EEILInTables, NCMInTables, OrCo, Closer,
    Topic, Idlvq, Sppr, SynthesizedFeatures, Limit, MetaFscil, CFscil,
    DeepEmd, MgSvF, DeepInv, DataFreeReplay, SsfeNet, Dsn,
)  # fmt: skip
METHODS: Registry[type[Method]] = Registry("masil.methods", {method.name: method for method in _OWN})
for _loss in (AliceLoss, CloserLoss, FactLoss, ICaRLLoss, IdlvqLoss, LimitLoss, SsfeLoss, TopicLoss):
    LOSSES[_loss.name] = _loss


def make(name: str, **parameters: Any) -> Method:
    """Make the method called `name`; `parameters` are the method's own."""
    method = lookup("method", name, METHODS)
    check_parameters(name, method, parameters)
    return method(**parameters)


def trains_its_own_base(method: Callable[..., Method]) -> bool:
    """Say whether a method gives a recipe for a base session of its own."""
    return isinstance(method, type) and getattr(method, "base_session", None) is not Method.base_session


def check_parameters(name: str, method: Callable[..., Method], parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that a method does not have or of another type; a function that makes one is not asked."""
    types = get_type_hints(method) if isinstance(method, type) else {}
    known = method.accepts() if isinstance(method, type) and issubclass(method, Method) else frozenset(parameters)
    for key in parameters:
        if key not in known:
            raise InputError(f"Method '{name}' has no parameter '{key}'; {suggest(key, known)}")
        if not fits(types.get(key, Any), parameters[key]):
            raise InputError(f"The parameter '{key}' of method '{name}' cannot be {parameters[key]!r}.")


def find_method(name: str) -> tuple[str, type[Method]]:
    """Give a method's name in tables, and the method: one called `name`, or a class of a file, "my.py:SimpleShot".

    Either with "+balance" behind it is the method with its scores balanced.
    """
    if name.endswith(BALANCE_SUFFIX):
        short, plain = find_method(name.removesuffix(BALANCE_SUFFIX))
        return short + BALANCE_SUFFIX, balanced(plain)
    file, colon, attribute = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        return name, lookup("method", name, METHODS)
    path = Path(file).resolve()
    if not path.is_file():
        raise InputError(f"There is no file {file}, from which the method '{attribute}' was to be taken.")
    module = _loaded(path, file)
    method = vars(module).get(attribute)
    if not (isinstance(method, type) and issubclass(method, Method)):
        if method is not None:
            raise InputError(f"'{attribute}' of {file} is no method: it is no subclass of masil.methods.Method.")
        ours = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Method)]
        raise InputError(f"{file} has no method called '{attribute}'; {suggest(attribute, set(ours) - {'Method'})}")
    return attribute, method


def _loaded(path: Path, file: str) -> ModuleType:
    """Load a file under its name, its folder on the path, so that processes that play its cells find it too."""
    known = importlib.util.find_spec(path.stem)
    if known is not None and Path(known.origin or "").resolve() != path:
        raise InputError(f"Another module is called '{path.stem}' already; give {file} another name.")
    if known is None:
        sys.path.insert(0, str(path.parent))
    try:
        return importlib.import_module(path.stem)
    except Exception as error:
        sys.path.remove(str(path.parent))
        raise InputError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
