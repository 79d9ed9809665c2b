"""Virtual classes, that are trained with the real ones so that features say more than those need: turns and pairs."""

import torch
from torch import Tensor

from masil.training.recipe import Recipe

TURNS = 4  # of a class, the upright one included
NARROW, WIDE = 0.4, 0.6  # the share of the first image in one that is fused of two
DRAWS = 39  # the median of 39 uniform numbers has the distribution Beta(20, 20)


def count(classes: int, recipe: Recipe) -> int:
    """Count all classes that a recipe trains: k, 4 k where images are turned, k + k(k − 1)/2 where they are fused."""
    if recipe.rotated:
        return classes * TURNS
    return classes + classes * (classes - 1) // 2 if recipe.fused else classes


def starts(means: Tensor, recipe: Recipe) -> Tensor:
    """Give a first vector for every class from the means [k d] of the real ones."""
    if recipe.rotated:
        return means.repeat(TURNS, 1)
    if not recipe.fused:
        return means
    first, second = torch.triu_indices(len(means), len(means), 1, device=means.device)
    return torch.cat([means, (means[first] + means[second]) / 2])


def turned(
    pixels: Tensor, labels: Tensor, share: float, classes: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Turn a share of the images by q = 1, 2 or 3 quarters; they become a virtual class, q · classes + label."""
    n = len(labels)
    chosen = torch.rand(n, generator=generator) < share
    quarters = torch.where(chosen, torch.randint(1, 4, (n,), generator=generator), 0).to(labels.device)
    result = pixels.clone()
    for quarter in (1, 2, 3):
        rows = quarters == quarter
        result[rows] = pixels[rows].rot90(quarter, (2, 3))
    return result, labels + quarters * classes


def fusion_shares(n: int, generator: torch.Generator) -> Tensor:
    """Draw ALICE's shares of the first image: Beta(20, 20), ½ in place of what lies outside [.4, .6]."""
    drawn = torch.rand(n, DRAWS, generator=generator).median(1).values
    return torch.where((drawn < NARROW) | (drawn > WIDE), 0.5, drawn)


def fused(
    pixels: Tensor, labels: Tensor, share: float, classes: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Blend a share of the images with another of the batch; those of two classes become the virtual class of the pair.

    The pairs a < b are counted from `classes` on, (0, 1) first, (0, 2) next: ALICE's class augmentation.
    """
    n = len(labels)
    partner = torch.randperm(n, generator=generator).to(labels.device)
    lam = fusion_shares(n, generator).to(pixels)
    chosen = (torch.rand(n, generator=generator) < share).to(labels.device) & (labels != labels[partner])
    weight = torch.where(chosen, lam, 1.0)[:, None, None, None]
    low, high = torch.minimum(labels, labels[partner]), torch.maximum(labels, labels[partner])
    pair = classes + low * (2 * classes - low - 1) // 2 + high - low - 1
    return torch.lerp(pixels[partner], pixels, weight), torch.where(chosen, pair, labels)
