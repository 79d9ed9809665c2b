"""How much each concept matters to a score, and where in a picture it lies: heat maps by gradient and by location."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import Backbone
from masil.errors import InputError

Target = Callable[[Tensor], Tensor]  # activations [m d] → scores [m]: a concept's coefficient, a class's score
Score = Callable[[Tensor], Tensor]  # coefficients [m v] → scores [m]


def gradient_importance(score: Score, coefficients: Tensor) -> Tensor:
    """Give p_j ∂score/∂p_j [n v]: for a linear score, what each concept adds to it; the rows then sum to the score."""
    if coefficients.ndim != 2 or not coefficients.is_floating_point():
        raise InputError(
            f"Coefficients must be floating-point [n v], but are {coefficients.dtype} {list(coefficients.shape)}."
        )
    with torch.enable_grad():
        p = coefficients.detach().requires_grad_()
        scores = score(p)
        if scores.shape != p.shape[:1]:
            raise InputError(
                f"The score of coefficients {list(p.shape)} must be [{len(p)}], but is {list(scores.shape)}; "
                "does it choose one class?"
            )
        (gradient,) = torch.autograd.grad(scores.sum(), p)
    return coefficients.detach() * gradient


@final
@dataclass(frozen=True)
class HeatMaps:
    """One map for each image, of its size: positive what speaks for the target, negative what speaks against it."""

    heat: Tensor  # [n h w]
    scores: Tensor  # [n], the target's value for each whole image


def gradient_maps(
    backbone: Backbone, pixels: Tensor, target: Target, *, samples: int = 8, noise: float = 0.1,
    blur: float | None = None, seed: int = 0,
) -> HeatMaps:  # fmt: skip
    """Give gradient × input, Σ_c x ∂target(f(x))/∂x, through the backbone and the implicit gradient of NNLS, smoothed.

    Args:
        backbone: gives the activations f(x), and normalises the pixels: grey in its sense is zero and has no heat.
        pixels: [n 3 h w], uint8 or float in [0, 1].
        target: a differentiable score of activations; `ConceptBank.target(j)` is the coefficient of concept j.
        samples: copies of the image, the first as it is and the others with noise, whose maps are averaged.
        noise: standard deviation of the noise, as a share of each image's range of normalised values.
        blur: standard deviation in pixels of the Gaussian blur; 1/32 of the shorter side if not given, 0 for none.
        seed: of the noise. The same seed gives the same maps.

    """
    if samples < 1 or noise < 0 or (blur is not None and blur < 0):
        raise InputError(f"A gradient map needs samples >= 1, noise >= 0, blur >= 0, not {samples}, {noise}, {blur}.")
    generator = torch.Generator().manual_seed(seed)
    with _evaluating(backbone), torch.enable_grad():
        x = backbone.preprocess(pixels).detach()
        width = (x.amax((1, 2, 3)) - x.amin((1, 2, 3)))[:, None, None, None] * noise
        heat, scores = _gradient_times_input(backbone, x, target)
        for _ in range(samples - 1):
            grain = torch.randn(x.shape, generator=generator).to(x)
            heat += _gradient_times_input(backbone, x + width * grain, target)[0]
    sigma = min(x.shape[2:]) / 32 if blur is None else blur
    return HeatMaps(_gaussian(heat / samples, sigma), scores)


def location_maps(backbone: Backbone, pixels: Tensor, target: Target) -> HeatMaps:
    """Give the target's score at every position of the last feature map, enlarged bilinearly to the size of the image.

    With `ConceptBank.target(j)`, it is the coefficient of concept j by NNLS at every position.
    """
    with _evaluating(backbone), torch.no_grad():
        maps = backbone.maps(backbone.preprocess(pixels))  # [n d h' w']
        n, d, h, w = maps.shape
        heat = _score(target, maps.permute(0, 2, 3, 1).reshape(-1, d)).reshape(n, 1, h, w)
        scores = _score(target, maps.mean((2, 3)))
        heat = functional.interpolate(heat, size=pixels.shape[2:], mode="bilinear", align_corners=False)
    return HeatMaps(heat[:, 0], scores)


def _gradient_times_input(backbone: Backbone, x: Tensor, target: Target) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    scores = _score(target, backbone(x))
    (gradient,) = torch.autograd.grad(scores.sum(), x)
    return (gradient * x.detach()).sum(1), scores.detach()


def _score(target: Target, activations: Tensor) -> Tensor:
    scores = target(activations)
    if scores.shape != activations.shape[:1]:
        raise InputError(
            f"The target of {len(activations)} activations must be [{len(activations)}] scores, "
            f"but is {list(scores.shape)}; does it choose one class or one concept?"
        )
    return scores


def _gaussian(heat: Tensor, sigma: float) -> Tensor:
    """Blur [n h w] along rows and columns; beyond the border the map is zero, and the sum of its heat falls there."""
    if sigma == 0:
        return heat
    reach = max(1, round(3 * sigma))
    offsets = torch.arange(-reach, reach + 1, dtype=heat.dtype, device=heat.device)
    kernel = torch.exp(-offsets.square() / (2 * sigma**2))
    kernel = (kernel / kernel.sum())[None, None, None]
    heat = functional.conv2d(heat[:, None], kernel, padding=(0, reach))
    return functional.conv2d(heat, kernel.transpose(2, 3), padding=(reach, 0))[:, 0]


@contextmanager
def _evaluating(backbone: nn.Module) -> Iterator[None]:
    """Put every module into evaluation mode, so that images do not see each other, and back as it was."""
    modes = [(module, module.training) for module in backbone.modules()]
    backbone.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
