"""Who factorises activations, and who solves non-negative least squares: masil and its peers, called as they ask to be.

Each entry opens a package (ImportError: it is not installed) and gives a function of data and a number of iterations.
"""

import importlib.util
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Factorise = Callable[[Array, int, int], tuple[Array, Array]]  # A, v, iterations -> P, Q
Solve = Callable[[Array, Array, int], Array]  # A, Q, iterations -> P


def objective(A: Array, P: Array, Q: Array) -> float:
    """½‖A − PQ‖² in double precision."""
    rows = range(0, len(A), 1 << 14)
    return sum(0.5 * float(np.square(A[r : r + (1 << 14)] - P[r : r + (1 << 14)] @ Q, dtype=float).sum()) for r in rows)


def bare(name: str) -> None:
    """Let parts of a package be imported without its own __init__, which may ask for much that the parts do not use."""
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(name)
    package = types.ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules[name] = package


def masil_nmf(solver: str) -> Factorise:
    import torch

    from masil.concepts import nmf

    def run(A: Array, v: int, iterations: int) -> tuple[Array, Array]:
        found = nmf(torch.from_numpy(A), v, solver=solver, max_iterations=iterations, tol=0)  # type: ignore[arg-type]
        assert found.coefficients is not None
        return found.coefficients.numpy(), found.concepts.numpy()

    return run


def sklearn_nmf(solver: str) -> Factorise:
    from sklearn.decomposition import NMF

    def run(A: Array, v: int, iterations: int) -> tuple[Array, Array]:
        model = NMF(v, init="nndsvda", solver=solver, max_iter=iterations, tol=0, random_state=0)
        return model.fit_transform(A), model.components_

    return run


def torchnmf() -> Factorise:
    import torch
    from torchnmf.nmf import NMF

    def run(A: Array, v: int, iterations: int) -> tuple[Array, Array]:
        torch.manual_seed(0)
        model = NMF(A.shape, v)
        model.fit(torch.from_numpy(A), beta=2, tol=0, max_iter=iterations)
        return model.H.detach().numpy(), model.W.detach().numpy().T

    return run


def overcomplete_nmf() -> Factorise:
    import torch

    bare("overcomplete")
    from overcomplete.optimization import NMF

    def run(A: Array, v: int, iterations: int) -> tuple[Array, Array]:
        P, Q = NMF(v, solver="hals", tol=0).fit(torch.from_numpy(A), max_iter=iterations)
        return P.numpy(), Q.numpy()

    return run


def xplique_nmf() -> Factorise:
    bare("xplique")
    bare("xplique.concepts")
    bare("xplique.concepts.torch")
    from xplique.concepts.torch.factorizer import TorchSklearnNMFFactorizer

    def run(A: Array, v: int, iterations: int) -> tuple[Array, Array]:
        Q, P = TorchSklearnNMFFactorizer(v, max_iter=iterations, tol=0, random_state=0).fit(A)
        return P, Q

    return run


def jaxopt_nmf() -> Factorise:
    import jax.numpy as jnp
    from jaxopt import BlockCoordinateDescent, objective, prox

    # One sweep of block coordinate descent over each factor in turn; the prox with weight zero is max(0, ·).
    solver = BlockCoordinateDescent(objective.least_squares, prox.prox_non_negative_ridge, maxiter=1, tol=0)

    def run(A: Array, v: int, iterations: int) -> tuple[Array, Array]:
        n, d = A.shape
        draw, scale = np.random.default_rng(0), np.sqrt(A.mean() / v)
        P, Q = (jnp.asarray(draw.random(shape, np.float32) * scale) for shape in ((n, v), (v, d)))
        rows, columns = jnp.asarray(A), jnp.asarray(A.T)
        for _ in range(iterations):
            P = solver.run(P.T, hyperparams_prox=0.0, data=(Q.T, columns)).params.T
            Q = solver.run(Q, hyperparams_prox=0.0, data=(P, rows)).params
        return np.asarray(P), np.asarray(Q)

    return run


def optax_nmf() -> Factorise:
    import jax.numpy as jnp
    import optax

    def run(A: Array, v: int, iterations: int) -> tuple[Array, Array]:
        draw = np.random.default_rng(0)
        Q = jnp.asarray(draw.random((v, A.shape[1]), np.float32))
        rows, columns = jnp.asarray(A), jnp.asarray(A.T)
        for _ in range(iterations):  # it cannot be started warm: each factor is solved from zero
            P = optax.nnls(Q.T, columns, 50).T
            Q = optax.nnls(P, rows, 50)
        return np.asarray(P), np.asarray(Q)

    return run


def masil_nnls() -> Solve:
    import torch

    from masil.concepts import nnls

    def run(A: Array, Q: Array, _: int) -> Array:
        return nnls(torch.from_numpy(A), torch.from_numpy(Q), tol=5e-6).coefficients.numpy()

    return run


def scipy_nnls() -> Solve:
    from scipy.optimize import nnls

    def run(A: Array, Q: Array, _: int) -> Array:
        return np.stack([nnls(Q.T, row)[0] for row in A])

    return run


def sklearn_transform() -> Solve:
    from sklearn.decomposition import NMF

    def run(A: Array, Q: Array, iterations: int) -> Array:
        model = NMF(len(Q), max_iter=iterations, tol=0)
        model.components_, model.n_components_, model.n_features_in_ = Q, len(Q), Q.shape[1]
        model._n_components, model._beta_loss = len(Q), 2
        return model.transform(A)

    return run


def overcomplete_nnls() -> Solve:
    import torch

    bare("overcomplete")
    from overcomplete.optimization.utils import matrix_nnls

    def run(A: Array, Q: Array, iterations: int) -> Array:
        torch.manual_seed(0)
        return matrix_nnls(torch.from_numpy(Q).T, torch.from_numpy(A).T, max_iter=iterations, tol=0).T.numpy()

    return run


def xplique_nnls() -> Solve:
    import torch

    bare("xplique")
    bare("xplique.concepts")
    bare("xplique.concepts.torch")
    from xplique.concepts.torch.factorizer import TorchSklearnNMFFactorizer

    def run(A: Array, Q: Array, iterations: int) -> Array:
        model = TorchSklearnNMFFactorizer(len(Q), max_iter=iterations, tol=0)
        model._concept_bank_w = Q
        return model.encode_differentiable(torch.from_numpy(A)).numpy()

    return run


def optax_nnls() -> Solve:
    import jax.numpy as jnp
    import optax

    def run(A: Array, Q: Array, iterations: int) -> Array:
        return np.asarray(optax.nnls(jnp.asarray(Q.T), jnp.asarray(A.T), iterations).T)

    return run


NMF: dict[str, Callable[[], Factorise]] = {
    "masil": lambda: masil_nmf("auto"),
    "masil, admm": lambda: masil_nmf("admm"),
    "scikit-learn, cd": lambda: sklearn_nmf("cd"),
    "scikit-learn, mu": lambda: sklearn_nmf("mu"),
    "torchnmf": torchnmf,
    "overcomplete, hals": overcomplete_nmf,
    "xplique (scikit-learn's)": xplique_nmf,
    "jaxopt, block coordinates": jaxopt_nmf,
    "optax, alternating nnls": optax_nmf,
}
NNLS: dict[str, Callable[[], Solve]] = {
    "masil": masil_nnls,
    "scipy, row by row": scipy_nnls,
    "scikit-learn, transform": sklearn_transform,
    "overcomplete": overcomplete_nnls,
    "xplique": xplique_nnls,
    "optax": optax_nnls,
}
EXACT = {"masil", "scipy, row by row"}  # of NNLS: they know by themselves when they are there

warnings.simplefilter("ignore")  # not to have converged is what is asked for here
