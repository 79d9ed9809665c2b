"""Base sessions trained beside one another, each in a child process: this gets more out of a few cores.

On two cores of a Xeon at 2.5 GHz a process of two threads trained a ResNet-18 1.4 times as fast as one of one thread,
and two processes of one thread together 1.7 times (16 px, float32).
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import joblib

from masil.benchmark.cluster import Children, pack
from masil.data import Dataset, Images
from masil.hardware import resolve_device, usable_cores
from masil.protocol import Protocol, sessions
from masil.storage import read_json
from masil.training import Recipe, Trained, load_trained, train

LOG = logging.getLogger(__name__)
HISTORY, DIARY = "history.json", "log.txt"  # in the folder of a base session


@final
@dataclass(frozen=True)
class BaseSession:
    """A base session to be trained, or trained already, in `folder`, and the methods that are played on it."""

    protocol: Protocol
    recipe: Recipe
    folder: Path
    methods: tuple[str, ...] = ()

    @property
    def epochs_done(self) -> int:
        """How many epochs the folder holds already."""
        history = self.folder / HISTORY
        return len(read_json(history)) if history.is_file() else 0

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epochs_done >= self.recipe.epochs

    def train(self, dataset: Dataset, device: str) -> Trained:
        """Train it in this process, going on where an earlier one was stopped."""
        base = next(sessions(self.protocol, dataset))
        return train(base.train, self.recipe, self.folder, names=base.names, device=device)


def side_by_side(bases: Sequence[BaseSession], device: str, jobs: int | None = None) -> int:
    """Say how many of these base sessions are trained at a time: one for each of `jobs`, on processors alone."""
    unfinished = sum(not base.finished for base in bases)
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    if not alone or resolve_device(device).type != "cpu":
        return min(1, unfinished)
    return min(jobs or usable_cores(), usable_cores(), unfinished)


def train_all(
    pairs: Sequence[tuple[BaseSession, Dataset]], device: str, jobs: int | None = None
) -> Iterator[tuple[BaseSession, Trained]]:
    """Train base sessions, several at a time where that pays, and yield each with what it gave when it is finished."""
    together = side_by_side([base for base, _ in pairs], device, jobs)
    in_children = {base.folder for base, _ in pairs if together > 1 and not base.finished}
    for base, dataset in pairs:
        if base.folder not in in_children:
            yield base, base.train(dataset, device)
    if not in_children:
        return
    # Children of its own: cells are played meanwhile, and end theirs.
    children = Children({"OMP_NUM_THREADS": str(max(1, usable_cores() // together))})
    parallel = joblib.Parallel(together, backend="threading", batch_size=1, return_as="generator_unordered")
    try:
        yield from parallel(
            joblib.delayed(_train_in_child)(base, dataset, children, device)
            for base, dataset in pairs
            if base.folder in in_children
        )
    finally:
        children.end()


def _train_in_child(
    base: BaseSession, dataset: Dataset, children: Children, device: str
) -> tuple[BaseSession, Trained]:
    LOG.info("Training '%s'; %s follows it.", base.recipe.name, base.folder / DIARY)
    first = next(sessions(base.protocol, dataset))
    children.run(pack(_train_here, base, first.train, {"device": device, "names": first.names}))
    LOG.info("'%s' is trained.", base.recipe.name)
    return base, load_trained(base.folder)


def _train_here(base: BaseSession, images: Images, options: Mapping[str, Any]) -> None:
    """Be the child: train, and write what there is to say into a file."""
    base.folder.mkdir(parents=True, exist_ok=True)
    diary = logging.FileHandler(base.folder / DIARY, encoding="utf-8")
    diary.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("masil.training")
    logger.addHandler(diary)
    logger.setLevel(logging.INFO)
    try:
        train(images, base.recipe, base.folder, **options)
    finally:
        logger.removeHandler(diary)
        diary.close()
