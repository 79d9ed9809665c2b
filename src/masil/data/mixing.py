"""Two images in one: mixup and cutmix, with the share that each label keeps."""

from typing import NamedTuple

import torch
from scipy.special import betaincinv
from torch import Tensor

from masil.data.augment import box_mask, draw_centres
from masil.data.geometry import check_images, uniform
from masil.errors import InputError


class Mixed(NamedTuple):
    """Mixed images: image i is lam[i] of itself and 1 − lam[i] of image partner[i], and so is its label."""

    images: Tensor  # [n c h w]
    partner: Tensor  # int64 [n]
    lam: Tensor  # float32 [n], in [0, 1]


def mixup(x: Tensor, alpha: float, generator: torch.Generator) -> Mixed:
    """Blend each image with a partner, λ x + (1 − λ) x', λ ~ Beta(α, α) for each image."""
    check_images(x)
    lam, partner = draw_partners(len(x), alpha, generator)
    lam, partner = lam.to(x.device), partner.to(x.device)
    return Mixed(torch.lerp(x[partner], x, lam.to(x.dtype)[:, None, None, None]), partner, lam)


def cutmix(x: Tensor, alpha: float, generator: torch.Generator) -> Mixed:
    """Paste a box of a partner into each image; λ is the share of the image that is really left.

    The box has a share 1 − λ of the area, λ ~ Beta(α, α), and any pixel as its centre. What lies outside the image is
    cut off, so λ is computed again from the box that remains.
    """
    check_images(x)
    h, w = x.shape[2:]
    lam, partner = draw_partners(len(x), alpha, generator)
    boxes = clip_boxes(draw_centres(len(x), (h, w), generator), lam, (h, w))
    lam, partner, boxes = 1 - boxes[:, 2:].prod(1) / (h * w), partner.to(x.device), boxes.to(x.device)
    return Mixed(torch.where(box_mask(boxes, x), x[partner], x), partner, lam.to(x.device))


def draw_partners(n: int, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw λ ~ Beta(α, α) [n] by inverting its distribution function, and a permutation of partners [n]."""
    if not 0 < alpha < float("inf"):
        raise InputError(f"Mixing needs a Beta(α, α) distribution with α > 0, but α is {alpha}.")
    share = uniform((n,), 0, 1, generator)
    lam = torch.as_tensor(betaincinv(alpha, alpha, share.double().cpu().numpy()), dtype=torch.float32)
    partner = torch.randperm(n, generator=generator, device=generator.device)
    return lam.clamp(0, 1).to(generator.device), partner


def clip_boxes(centres: Tensor, lam: Tensor, shape: tuple[int, int]) -> Tensor:
    """Give [n 4] boxes (top, left, height, width) of a share 1 − λ of the area about `centres`, cut at the border."""
    limits = torch.tensor(shape, device=centres.device)
    sides = ((1 - lam).sqrt()[:, None] * limits).long()  # [n 2]
    start = (centres - sides // 2).clamp_min(0)
    end = torch.minimum(centres - sides // 2 + sides, limits)
    return torch.cat([start, end - start], 1)
