"""The paper's experiments as a plan: the base sessions that its tables need, how long they take here, their runs.

A row of a table is a method on a protocol. Rows whose base sessions have the same recipe share one, which is trained
once and kept in a folder of its own; whatever was finished before is used again.
"""

import logging
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from masil.benchmark.base_sessions import BaseSession
from masil.benchmark.cell import Entry
from masil.benchmark.grid import Grid, bench
from masil.benchmark.plan import own_recipe
from masil.benchmark.setting import Setting, fields_from
from masil.data import Dataset, Images
from masil.errors import StorageError, lookup
from masil.protocol import PROTOCOLS, first_of_each, sessions
from masil.training import Recipe, Trained, train
from masil.training import recipe as find_recipe

LOG = logging.getLogger(__name__)
TIMED = 4  # batches

PAPER = ("miniimagenet", "cifar100", "cub200")
ABLATION = ("learnable-ce", "nc-ce", "nc-fscil", "cf-as-written", "masil-as-written", "masil")
TABLE = ("nc-fscil", "masil-as-written", "masil")
PARTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # protocols and methods
    "table1": (("miniimagenet",), TABLE),
    "table2": (("cifar100",), TABLE),
    "table3": (("cub200",), TABLE),
    "ablation": (PAPER, ABLATION),
    "figure": (PAPER, ABLATION[:-1]),
    "concepts": (PAPER, ("masil-as-written",)),
    "characters": (("characters",), ABLATION),  # not in the paper: the whole road in minutes, without a download
}
ALL = tuple(part for part in PARTS if part != "characters")


@final
@dataclass(frozen=True)
class Budget:
    """How much time the base sessions get; `own` are the recipes of this package's MASIL, by data set."""

    name: str
    suffix: str  # of the paper's recipes
    own: Mapping[str, str]
    words: str
    bank: int | None = None  # images of each class whose crops make the concepts; None = all, as in the paper

    def recipe(self, dataset: str, method: str) -> Recipe:
        """Give the recipe of a row, before the method puts its own loss into it."""
        return find_recipe(self.own[dataset] if method == "masil" else f"{dataset}-paper{self.suffix}")


_FAST = {"miniimagenet": "miniimagenet-fast", "cifar100": "cifar100-fast", "cub200": "cub200-gentle-resnet18"}
_SHORT = {**_FAST, "miniimagenet": "miniimagenet-short", "cifar100": "cifar100-short", "characters": "characters-fast"}
BUDGETS: Mapping[str, Budget] = {
    budget.name: budget
    for budget in (
        Budget(
            "quick",
            "-quick",
            _SHORT,
            "a few minutes for each base session on two cores, at half width, by Muon instead of SGD with restarts "
            "(CUB-200: at full width, its last two stages by SGD), concepts of the crops of 10 images of each class",
            bank=10,
        ),
        Budget(
            "leg",
            "-leg",
            _FAST,
            "some 2.5 hours at most for each base session on two cores, at full width, by Muon instead of SGD with "
            "restarts (CUB-200: its last two stages by SGD), concepts of the crops of 100 images of each class",
            bank=100,
        ),
        Budget("full", "", _FAST, "the paper's epochs, sizes, batches and crops, for which a GPU is needed"),
    )
}


def plan_reproduction(parts: Iterable[str], budget: Budget, out: Path, only: Sequence[str] = ()) -> list[BaseSession]:
    """Give the base sessions that parts of the paper need, each once, with the rows that share it.

    `only` names the protocols to be played; without any, all are.
    """
    rows: dict[tuple[str, str], None] = {}
    for part in parts:
        protocols, methods = lookup("part of the paper", part, PARTS)
        rows |= dict.fromkeys((protocol, method) for protocol in protocols for method in methods)
    for asked in only:
        lookup("data set in these parts of the paper", asked, {name: name for name, _ in rows})
    rows = {row: None for row in rows if not only or row[0] in only}
    planned: dict[str, BaseSession] = {}
    for name, method in rows:
        protocol = PROTOCOLS[name]
        recipe = own_recipe(method, budget.recipe(protocol.dataset, method), protocol)
        base = planned.setdefault(recipe.name, BaseSession(protocol, recipe, out / "base" / recipe.name))
        planned[recipe.name] = replace(base, methods=(*base.methods, method))
    return list(planned.values())


def with_weights(planned: Sequence[BaseSession], file: Path) -> list[BaseSession]:
    """Let base sessions that start from an ImageNet ResNet-18, of which no package brings weights, read them there."""
    bases = []
    for base in planned:
        if base.recipe.weights == "imagenet" and base.recipe.backbone == "resnet18":
            if not file.is_file():
                raise StorageError(
                    f"'{base.recipe.name}' starts from an ImageNet ResNet-18, but there is no weight file {file}; "
                    "name one with --weights (torchvision's fits)."
                )
            base = replace(base, recipe=replace(base.recipe, weights=str(file)))
        bases.append(base)
    return bases


def estimate_seconds(planned: Sequence[BaseSession], datasets: Mapping[str, Dataset], device: str) -> list[float]:
    """Say how long each base session will still take by itself on this machine, by steps of networks thrown away.

    Recipes that differ in their loss alone are timed once. Compilation, which may be faster, is not counted on.
    """
    known: dict[tuple[Any, ...], float] = {}  # seconds an epoch
    totals = []
    for base in planned:
        images = next(sessions(base.protocol, datasets[base.protocol.dataset])).train
        total = 0.0
        for px in map(base.recipe.pixels, range(base.epochs_done, base.recipe.epochs)):
            key = (base.protocol.name, base.recipe.backbone, base.recipe.width, base.recipe.batch, px)
            if key not in known:
                known[key] = _epoch_seconds(images, base.recipe, px, device)
            total += known[key]
        totals.append(total)
    return totals


def _epoch_seconds(images: Images, recipe: Recipe, px: int, device: str) -> float:
    """Train on a few batches and give the time of a whole epoch at that speed."""
    labels = images.labels
    per_class = max(2, -(-TIMED * recipe.batch // int(labels.max() + 1)))
    trial = replace(
        recipe, name=f"{recipe.name}, timed", stages=((1, px),), compile=False, watch=replace(recipe.watch, nc_every=0)
    )
    with tempfile.TemporaryDirectory() as folder:
        row = train(images.subset(first_of_each(labels, per_class)), trial, folder, device=device).history[-1]
    return len(images) / float(row["images_per_second"])


def trained_setting(base: BaseSession, dataset: Dataset, trained: Trained, device: str) -> Setting:
    """Give what the methods of a base session see."""
    return Setting(base.protocol, dataset, device=device, **fields_from(trained))


def play_base(
    base: BaseSession, setting: Setting, budget: Budget, *, draws: int, out: Path, workers: int | None = None
) -> Grid:
    """Play a base session's methods on the field's standard shots, where there are any, and on `draws` others."""
    standard = [None] if setting.dataset.shots is not None else []
    given = {"images": budget.bank} if budget.bank is not None else {}
    entries = [Entry.of(method, given if method.endswith("as-written") else None) for method in base.methods]
    return bench(setting, entries, [*standard, *range(draws)], out=out / "runs" / base.recipe.name, workers=workers)
