"""How far a representation has collapsed: NC1–NC4 of Papyan, Han and Donoho (2020), each 0 (NC4: 1) at the simplex."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse.moments import blocks, double_class_means
from masil.errors import InputError


@final
@dataclass(frozen=True)
class NCMeasures:
    """NC1–NC4. M are the class means minus their mean, w the class vectors, k the number of classes."""

    nc1: float  # variability collapse, tr(Σ_W Σ_B⁺) / k
    nc1_ratio: float  # the same without directions, tr Σ_W / tr Σ_B
    equinorm_means: float  # NC2: standard deviation / mean of ‖M_c‖
    equinorm_vectors: float  # and of ‖w_c‖
    equiangular_means: float  # NC2: standard deviation of cos(M_c, M_c') over pairs
    equiangular_vectors: float  # and of cos(w_c, w_c')
    simplex_means: float  # NC2: mean |cos(M_c, M_c') + 1/(k−1)| over pairs
    simplex_vectors: float  # and of cos(w_c, w_c')
    nc3: float  # self-duality, ‖W/‖W‖ − M/‖M‖‖
    nc4: float  # share of images whose class by ⟨h, w⟩ is that of the nearest class mean


def nc_measures(activations: Tensor, labels: Tensor, class_vectors: Tensor) -> NCMeasures:
    """Measure activations or embeddings [n d], labelled 0 … k−1, against class vectors [k d]."""
    W = class_vectors.detach().to("cpu", torch.float64)
    if W.ndim != 2 or activations.ndim != 2 or W.shape[1] != activations.shape[1]:
        raise InputError(
            f"The activations are {list(activations.shape)} and the class vectors {list(W.shape)}; "
            f"both need the same number of features."
        )
    k = len(W)
    if k < 2:
        raise InputError(f"Collapse is measured between classes, but there is only {k}.")
    if not bool((W.norm(dim=1) > 0).all()):
        raise InputError("A class vector is zero or not a number, so it has no direction to measure.")
    means = double_class_means(activations, labels, k)
    M = means - means.mean(0)
    # Centring leaves rounding of the means where there should be a zero, however close together they lie.
    rounding = float(means.norm()) * max(M.shape) * torch.finfo(M.dtype).eps
    if not float(M.norm()) > rounding:
        raise InputError("All classes have the same mean activations; has the network died?")
    nc1, nc1_ratio, nc4 = _over_images(activations, labels, means, M, W, rounding)
    return NCMeasures(
        nc1=nc1,
        nc1_ratio=nc1_ratio,
        equinorm_means=_equinorm(M),
        equinorm_vectors=_equinorm(W),
        equiangular_means=float(_cosines(M).std(correction=0)),
        equiangular_vectors=float(_cosines(W).std(correction=0)),
        simplex_means=float((_cosines(M) + 1 / (k - 1)).abs().mean()),
        simplex_vectors=float((_cosines(W) + 1 / (k - 1)).abs().mean()),
        nc3=float((W / W.norm() - M / M.norm()).norm()),
        nc4=nc4,
    )


def _over_images(
    activations: Tensor, labels: Tensor, means: Tensor, M: Tensor, W: Tensor, rounding: float
) -> tuple[float, float, float]:
    """Give NC1, its ratio and NC4 in one pass over the images."""
    n, k = len(labels), len(M)
    # Σ_B = MᵀM/k has rank < k, so with M = U S Vᵀ its pseudo-inverse is F Fᵀ, F = √k V S⁻¹ [d k−1], and
    # tr(Σ_W Σ_B⁺) = mean ‖(h − μ_y) F‖²: no d × d matrix is needed.
    _, S, Vt = torch.linalg.svd(M, full_matrices=False)
    kept = S.gt(rounding)
    F = k**0.5 * Vt[kept].T / S[kept]
    half_norms = means.square().sum(1) / 2
    whitened = spread = agreeing = 0.0
    for h, y in blocks(activations, labels):
        residuals = h - means[y]
        whitened += float((residuals @ F).square().sum())
        spread += float(residuals.square().sum())
        nearest = (h @ means.T - half_norms).argmax(1)  # argmin ‖h − μ_c‖²
        agreeing += int((nearest == (h @ W.T).argmax(1)).sum())
    return whitened / n / k, spread / n / (float(M.square().sum()) / k), agreeing / n


def _equinorm(vectors: Tensor) -> float:
    norms = vectors.norm(dim=1)
    return float(norms.std(correction=0) / norms.mean())


def _cosines(vectors: Tensor) -> Tensor:
    """Give the cosines of all pairs."""
    unit = functional.normalize(vectors)
    above = torch.triu_indices(len(unit), len(unit), offset=1)
    return (unit @ unit.T)[above[0], above[1]]
