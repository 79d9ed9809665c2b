"""The base session: from labelled images and a recipe to a backbone and its class vectors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from masil.backbones import Backbone, create
from masil.data import Images
from masil.errors import InputError
from masil.hardware import resolve_device
from masil.progress import bar, quiet
from masil.training.batches import Batches, read_names
from masil.training.checkpoint import FILE, read_checkpoint
from masil.training.compute import ComputeSettings, choose_settings, share_cores
from masil.training.distributed import World, joined, own_device
from masil.training.history import duration
from masil.training.recipe import Recipe
from masil.training.recipes import recipe as recipe_called
from masil.training.session import TrainingRun
from masil.training.trained import Trained, trained

LOG = logging.getLogger(__name__)


def train(
    images: Images,
    recipe: Recipe | str,
    folder: Path | str,
    *,
    names: Sequence[str] | None = None,
    device: str = "auto",
    precision: str = "auto",
    resume: bool = True,
    backbone: Backbone | None = None,
    checkpoint_steps: int = 0,
    hours: float | None = None,
) -> Trained:
    """Train a backbone on images labelled 0 … k−1 (Eq. obj), and keep checkpoint and history in `folder`.

    `names[i]` is what class i is called. They are kept, so that a learner finds the vector of each class by its name.
    A run that was killed goes on from its last checkpoint, written after each epoch and after every `checkpoint_steps`
    steps, to the weights it would have reached unbroken; a finished run gives its result at once. `backbone`, a network
    of one's own, takes the place of the recipe's and receives the trained weights. With `hours`, the epochs of each
    stage are multiplied so that training takes about so long on this machine; the recipe that is kept says what came of
    it. Under torchrun all processes train as one.
    """
    recipe = recipe_called(recipe) if isinstance(recipe, str) else recipe
    folder = Path(folder)
    target = own_device(resolve_device(device))
    with joined(target) as world:
        share_cores(world)
        plain = _start(recipe) if backbone is None else backbone
        batches = Batches(images, recipe, plain.framing.resize, target)
        world.check_batch(batches.batch)
        settings = choose_settings(target, precision, recipe, batches.steps, world)
        if hours is not None:
            recipe = _in_hours(hours, recipe, (plain, batches, settings, world, folder))
            batches.recipe = recipe
        called = None if names is None else read_names(names, batches.classes)
        session = TrainingRun(plain, batches, recipe, settings, world, folder, called)
        _take_up(session, folder, resume, world)
        if session.epoch < recipe.epochs:
            _run(session, checkpoint_steps, world)
        world.wait()
        return trained(session.checkpoint(), plain, folder / FILE)


def _in_hours(hours: float, recipe: Recipe, parts: tuple[Backbone, Batches, ComputeSettings, World, Path]) -> Recipe:
    """Give the recipe with as many epochs as fit; a run that was begun has its number already."""
    plain, batches, settings, world, folder = parts
    if hours <= 0:
        raise InputError(f"Training is to take {hours} hours; give a time above 0.")
    if (begun := read_checkpoint(folder)) is not None:
        return replace(recipe, stages=begun.recipe.stages)
    trial = TrainingRun(plain, batches, recipe, settings, world, folder)
    seconds = [trial.epoch_seconds(px) for _, px in recipe.stages]
    usual = sum(epochs * each for (epochs, _), each in zip(recipe.stages, seconds, strict=True))
    times = 3600 * hours / usual
    stages = tuple((max(1, round(times * epochs)), px) for epochs, px in recipe.stages)
    LOG.info("The recipe's epochs would take %s here; in %g hours there are %s.", duration(usual), hours, stages)
    return replace(recipe, stages=stages)


def _start(recipe: Recipe) -> Backbone:
    """Build the recipe's backbone with its first weights, drawn from the seed or read from a file."""
    return create(
        recipe.backbone, weights=recipe.weights, framing=recipe.framing, width=recipe.width, seed=recipe.seed
    )  # fmt: skip


def _take_up(session: TrainingRun, folder: Path, resume: bool, world: World) -> None:
    """Go on from the folder's checkpoint if there is one and it is wanted; else begin."""
    if not resume and world.writes:
        (folder / FILE).unlink(missing_ok=True)
    saved = read_checkpoint(folder) if resume else None
    if saved is None:
        session.begin()
    else:
        session.restore(saved)
        if session.names != saved.names:
            session.save()  # it was trained before names were kept
    world.wait()


def _run(session: TrainingRun, every: int, world: World) -> None:
    """Train to the end under one progress bar, shown by one process."""
    silence = nullcontext() if world.writes else quiet()
    with silence, bar(f"Base session '{session.recipe.name}'", session.work_left()) as advance:
        while session.epoch < session.recipe.epochs:
            session.run_epoch(advance, every)
