"""The base session: from labelled images and a recipe to a backbone and its class vectors."""

import logging
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from masil.backbones import Backbone, create
from masil.data import Images
from masil.errors import InputError
from masil.hardware import resolve_device
from masil.progress import bar, quiet
from masil.training.batches import Batches, read_names
from masil.training.compute import choose_settings, joined, long_sizes, own_device
from masil.training.loss import at_least
from masil.training.recipe import Recipe
from masil.training.recipes import recipe as find_recipe
from masil.training.session import TrainingRun
from masil.training.trained import FILE, Trained, read_checkpoint, trained
from masil.wording import duration

LOG = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class TrainOptions:
    """How a base session is carried out on this machine."""

    precision: str = "auto"  # the fastest that trains rightly here
    resume: bool = True  # whether to go on from the checkpoint in the folder
    checkpoint_steps: int = 0  # save after every so many steps, not only after each epoch
    hours: float | None = None  # multiply the epochs of each stage to take about so long; the kept recipe says it

    def __post_init__(self) -> None:
        at_least(self, 0, "checkpoint_steps")
        if self.hours is not None and not 0 < self.hours < math.inf:
            raise InputError(f"Training is to take {self.hours} hours; give a time above 0.")


def train(
    images: Images,
    recipe: Recipe | str,
    folder: Path | str,
    *,
    names: Sequence[str] | None = None,
    device: str = "auto",
    backbone: Backbone | None = None,
    options: TrainOptions = TrainOptions(),
) -> Trained:
    """Train a backbone on images labelled 0 … k−1 (Eq. obj), and keep checkpoint and history in `folder`.

    `names[i]` is what class i is called. They are kept, so that a learner finds the vector of each class by its name.
    A run that was killed goes on from its last checkpoint to the weights it would have reached unbroken; a finished run
    gives its result at once. `backbone`, a network of one's own, takes the place of the recipe's and receives the
    trained weights. Under torchrun all processes train as one.
    """
    recipe = find_recipe(recipe) if isinstance(recipe, str) else recipe
    folder = Path(folder)
    target = own_device(resolve_device(device))
    with joined(target) as world:
        if backbone is None:
            backbone = create(
                recipe.backbone, weights=recipe.weights, framing=recipe.framing, width=recipe.width, seed=recipe.seed
            )  # fmt: skip
        batches = Batches(images, recipe, backbone.framing.resize, target)
        world.share(batches.batch)  # refuses an uneven one
        compiles = recipe.compile and bool(long_sizes(recipe, batches.steps))
        settings = choose_settings(target, options.precision, compiles, world)
        if options.hours is not None:
            trial = TrainingRun(backbone, batches, folder, settings=settings, world=world)
            batches.recipe = _in_hours(options.hours, trial)
        called = None if names is None else read_names(names, batches.classes)
        run = TrainingRun(backbone, batches, folder, settings=settings, world=world, names=called)
        _take_up(run, options.resume)
        if run.epoch < run.recipe.epochs:
            run.prepare()
            silence = nullcontext() if world.writes else quiet()  # one process shows the bar
            with silence, bar(f"Base session '{run.recipe.name}'", run.work_left()) as advance:
                while run.epoch < run.recipe.epochs:
                    run.run_epoch(advance, options.checkpoint_steps)
        world.wait()
        return trained(run.checkpoint(), backbone, folder / FILE)


def _in_hours(hours: float, trial: TrainingRun) -> Recipe:
    """Give the recipe with as many epochs as fit, and a name that says so; a run that was begun has both already."""
    recipe = trial.recipe
    if (begun := read_checkpoint(trial.folder)) is not None:
        return replace(recipe, stages=begun.recipe.stages, name=begun.recipe.name)
    usual = sum(epochs * trial.epoch_seconds(px) for epochs, px in recipe.stages)
    times = 3600 * hours / usual
    stages = tuple((max(1, round(times * epochs)), px) for epochs, px in recipe.stages)
    LOG.info("The recipe's epochs would take %s here; in %g hours there are %s.", duration(usual), hours, stages)
    return replace(recipe, stages=stages, name=f"{recipe.name} epochs={sum(epochs for epochs, _ in stages)}")


def _take_up(run: TrainingRun, resume: bool) -> None:
    """Go on from the folder's checkpoint if there is one and it is wanted; else begin."""
    if not resume and run.world.writes:
        (run.folder / FILE).unlink(missing_ok=True)
    saved = read_checkpoint(run.folder) if resume else None
    if saved is None:
        run.begin()
    else:
        run.restore(saved)
        if run.names != saved.names:
            run.save()  # it was trained before names were kept
    run.world.wait()
