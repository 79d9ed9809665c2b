"""The base session: from labelled images and a recipe to a backbone and its class vectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from masil.backbones import Backbone, create
from masil.data import Images
from masil.hardware import resolve_device
from masil.progress import bar, quiet
from masil.training.batches import Batches, read_names
from masil.training.checkpoint import FILE, read_checkpoint
from masil.training.distributed import World, joined, own_device
from masil.training.engine import choose_engine, share_cores
from masil.training.recipe import Recipe
from masil.training.recipes import recipe as recipe_called
from masil.training.session import Session
from masil.training.trained import Trained, trained


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
) -> Trained:
    """Train a backbone on images labelled 0 … k−1 (Eq. obj), and keep checkpoint and history in `folder`.

    `names[i]` is what class i is called. They are kept, so that a learner finds the vector of each class by its name.
    A run that was killed goes on from its last checkpoint, written after each epoch and after every `checkpoint_steps`
    steps, to the weights it would have reached unbroken; a finished run gives its result at once. `backbone`, a network
    of one's own, takes the place of the recipe's and receives the trained weights. Under torchrun all processes train
    as one.
    """
    recipe = recipe_called(recipe) if isinstance(recipe, str) else recipe
    folder = Path(folder)
    target = own_device(resolve_device(device))
    with joined(target) as world:
        share_cores(world)
        plain = _start(recipe) if backbone is None else backbone
        batches = Batches(images, recipe, plain.framing.resize, target)
        world.check_batch(batches.batch)
        engine = choose_engine(target, precision, recipe, batches.steps, world)
        called = None if names is None else read_names(names, batches.classes)
        session = Session(plain, batches, recipe, engine, world, folder, called)
        _take_up(session, folder, resume, world)
        if session.epoch < recipe.epochs:
            _run(session, checkpoint_steps, world)
        world.wait()
        return trained(session.checkpoint(), plain, folder / FILE)


def _start(recipe: Recipe) -> Backbone:
    """Build the recipe's backbone with its first weights, drawn from the seed or read from a file."""
    return create(
        recipe.backbone, weights=recipe.weights, framing=recipe.framing, width=recipe.width, seed=recipe.seed
    )  # fmt: skip


def _take_up(session: Session, folder: Path, resume: bool, world: World) -> None:
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


def _run(session: Session, every: int, world: World) -> None:
    """Train to the end under one progress bar, shown by one process."""
    silence = nullcontext() if world.writes else quiet()
    with silence, bar(f"Base session '{session.recipe.name}'", session.work_left()) as advance:
        while session.epoch < session.recipe.epochs:
            session.run_epoch(advance, every)
