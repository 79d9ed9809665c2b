"""Do explanations show what the model looks at? Deletion and insertion: python benchmarks/faithfulness.py

A learner is taught CUB-200's base classes. For test images, squares of the image are ranked by a heat map for "this
class and not the runner-up". Deletion blurs the hottest squares first, insertion uncovers them first in a blurred
image. The curve is the probability of the class that the whole image got, and its area the mean over the curve: small
for deletion and large for insertion where a map is faithful. Compared, on the same images:
  concepts   what `masil explain` draws: each concept's coefficient at each place, weighted by what it adds to the lead
  implicit   gradient × input of the same weighted coefficients, through network and NNLS (∂P/∂X, Eq. del), smoothed
  gradient   plain gradient × input of the lead, unsmoothed
  smooth     this averaged over noisy copies and blurred
  random     squares in random order
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor

from masil.backbones import ActivationStore, Backbone, create, open_engine
from masil.concepts import gradient_maps, location_maps
from masil.data import load
from masil.learner import Masil
from masil.progress import track
from masil.protocol import PROTOCOLS, Session, sessions
from masil.storage import write_json

GRID, STEPS, BLUR = 14, 14, 12.0  # squares a side, steps of a curve, radius in pixels


def fit() -> tuple[Masil, Backbone, Session]:
    """Give a learner of the activations of CUB-200's base session, the backbone that made them, and the session."""
    session = next(sessions(PROTOCOLS["cub200"], load("cub200")))
    backbone = create("efficientnet_lite0", weights="imagenet")
    model = Masil(backbone=None)
    model.fit(ActivationStore().get(backbone, session.train), session.train.labels.tolist())
    return model, backbone, session


def heat_maps(
    model: Masil, backbone: Backbone, pixels: Tensor, activations: Tensor, seed: int
) -> tuple[dict[str, Tensor], int]:
    """Give a heat map [GRID GRID] for each way, and the place of the class."""
    base, memory = model.base_, model.memory_
    own, other = (base.embed(activations[None]) @ memory.vectors.T - model.offsets_)[0].topk(2).indices.tolist()
    apart = memory.vectors[own] - memory.vectors[other]
    with torch.no_grad():
        zero = base.embedding.transform(torch.zeros(1, base.features))
        worth = (base.embedding.transform(base.bank.concepts) - zero) @ apart  # of a unit of each concept

    def lead(a: Tensor) -> Tensor:
        return base.embedding(base.take_power(a)) @ apart

    def concepts(a: Tensor) -> Tensor:
        return base.bank.coefficients(base.take_power(a)) @ worth

    maps = {
        "concepts": location_maps(backbone, pixels[None], concepts).heat,
        "implicit": gradient_maps(backbone, pixels[None], concepts, seed=seed).heat,
        "gradient": gradient_maps(backbone, pixels[None], lead, samples=1, noise=0.0, blur=0.0).heat,
        "smooth": gradient_maps(backbone, pixels[None], lead, seed=seed).heat,
        "random": torch.rand(1, GRID, GRID, generator=torch.Generator().manual_seed(seed)),
    }
    return {name: torch.nn.functional.adaptive_avg_pool2d(heat, GRID)[0] for name, heat in maps.items()}, own


def curves(pixels: Tensor, heat: Tensor, score: Callable[[Tensor], Tensor]) -> tuple[list[float], list[float]]:
    """Give the score of the image from whole to blurred, and from blurred to whole, hottest squares first."""
    picture = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    blurred = torch.from_numpy(np.array(picture.filter(ImageFilter.GaussianBlur(BLUR)))).permute(2, 0, 1)
    rank = heat.flatten().argsort(descending=True).argsort().reshape(GRID, GRID)
    side = -(-pixels.shape[1] // GRID)
    rank = rank.repeat_interleave(side, 0).repeat_interleave(side, 1)[: pixels.shape[1], : pixels.shape[2]]
    counts = [GRID * GRID * step // STEPS for step in range(STEPS + 1)]
    deleted = torch.stack([torch.where(rank < count, blurred, pixels) for count in counts])
    inserted = torch.stack([torch.where(rank < count, pixels, blurred) for count in counts])
    scores = score(torch.cat([deleted, inserted]))
    return scores[: STEPS + 1].tolist(), scores[STEPS + 1 :].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write all figures to this file, too")
    chosen = parser.parse_args()
    model, backbone, session = fit()
    engine = open_engine(backbone, device="cpu")
    order = torch.randperm(len(session.test), generator=torch.Generator().manual_seed(chosen.seed))
    areas: dict[str, dict[str, list[float]]] = {}
    for place in track(order[: chosen.images].tolist(), "Explaining"):
        pixels = session.test.load([place], backbone.framing)[0]
        maps, own = heat_maps(model, backbone, pixels, engine.run(pixels[None])[0], seed=chosen.seed + place)
        for name, heat in maps.items():
            lines = curves(pixels, heat, lambda x, k=own: model.answer(engine.run(x)).probabilities[:, k])
            for kind, line in zip(("deletion", "insertion"), lines, strict=True):
                areas.setdefault(kind, {}).setdefault(name, []).append(statistics.fmean(line))
    print(f"{chosen.images} test images of CUB-200's base classes; mean area (standard error)")
    found: dict[str, Any] = {}
    for kind, ways in areas.items():
        for name, values in ways.items():
            better = [(a < b) == (kind == "deletion") for a, b in zip(values, ways["random"], strict=True)]
            error = statistics.stdev(values) / len(values) ** 0.5
            one = {"mean": statistics.fmean(values), "error": error, "better_than_random": statistics.fmean(better)}
            found.setdefault(kind, {})[name] = one | {"areas": values}
            beats = "" if name == "random" else f"   better than random on {one['better_than_random']:.0%} of images"
            print(f"{kind:10} {name:9} {one['mean']:6.3f} ({error:.3f}){beats}")
    if chosen.json:
        write_json(chosen.json, {"images": chosen.images, "seed": chosen.seed, "grid": GRID, "steps": STEPS, **found})


if __name__ == "__main__":
    main()
