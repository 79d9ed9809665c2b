"""The base session of each method of a grid, and whether the method can be played on it: told before any is trained."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from masil.backbones import create
from masil.benchmark.base_sessions import BaseSession, train_all
from masil.benchmark.cell import Entry, Factory, Parameters
from masil.benchmark.gather import view_folder
from masil.benchmark.setting import Setting, with_base
from masil.errors import MasilError
from masil.methods import Method, Task, trains_its_own_base
from masil.protocol import Protocol
from masil.training import Recipe

LOG = logging.getLogger(__name__)


def own_recipe(method: str | Factory, usual: Recipe, protocol: Protocol, given: Parameters | None = None) -> Recipe:
    """Give the recipe of a method's base session: the usual one, unless the method trains in a way of its own."""
    return Entry.of(method, given).make(protocol.dataset).base_session(usual, protocol) or usual


def left_out(setting: Setting, entries: Iterable[Entry], recipe: Recipe | None = None) -> dict[str, str]:
    """Say by name why a grid of all methods leaves some out: here they cannot be played, or are hardly themselves."""
    return {
        name: sentence or f"Of '{name}' {method.on_shared} is all that a shared backbone leaves."
        for name, method, task, sentence in _planned(setting, entries, recipe)
        if sentence or (method.on_shared and not task.own)
    }


def refused(setting: Setting, entries: Iterable[Entry], recipe: Recipe | None = None) -> dict[str, str]:
    """Say by name why some methods cannot be played, before base sessions are trained for hours."""
    return {name: sentence for name, _, _, sentence in _planned(setting, entries, recipe) if sentence}


def _planned(
    setting: Setting, entries: Iterable[Entry], usual: Recipe | None
) -> Iterator[tuple[str, Method, Task, str]]:
    """Yield name, method, what it will be told as far as that is known before training, and why it refuses that."""
    for entry in entries:
        try:
            method = entry.make(setting.protocol.dataset)
        except MasilError:
            raise
        except Exception:  # noqa: BLE001, S112  one of somebody else's that cannot be made: the grid says so
            continue
        recipe, task = _recipe_to_train(setting, entry, usual), entry.task(setting, method, 0)
        if recipe is not None:
            network = task.backbone and create(recipe.backbone, weights=None, framing=recipe.framing)
            task = replace(task, own=True, adapted=True, backbone=network)
        try:
            method.check_task(task)
        except MasilError as error:
            yield entry.name, method, task, str(error)
        else:
            yield entry.name, method, task, ""


def settings(
    setting: Setting, entries: Sequence[Entry], usual: Recipe | None, folder: Path, *, jobs: int | None
) -> list[Setting]:
    """Give each method the shared backbone, or one whose base session is trained in its own way."""
    own = [_own_base(setting, entry, usual, folder) for entry in entries]
    wanted = {base.folder: base for base in own if base is not None}
    pairs = [(base, setting.dataset) for base in wanted.values()]
    settings = {base.folder: with_base(setting, trained) for base, trained in train_all(pairs, setting.device, jobs)}
    return [setting if base is None else settings[base.folder] for base in own]


def _own_base(setting: Setting, entry: Entry, usual: Recipe | None, folder: Path) -> BaseSession | None:
    """Give the base session that a method trains in its own way; None if it takes the shared one."""
    recipe = _recipe_to_train(setting, entry, usual)
    if recipe is None:
        if usual is None and _lacks_its_own(setting, entry):
            LOG.warning(
                "'%s' trains a base session of its own, but has the shared backbone here: no recipe is given.",
                entry.name,
            )
        return None
    shared = recipe.method not in (None, entry.name)  # with the method whose base session this is
    place = folder / f"base-{recipe.method if shared else view_folder(folder, entry).name}"
    return BaseSession(setting.protocol, recipe, place)


def _recipe_to_train(setting: Setting, entry: Entry, usual: Recipe | None) -> Recipe | None:
    """Give the recipe by which a method's own base session is trained; None if it takes the shared one."""
    if usual is None or not _lacks_its_own(setting, entry):
        return None
    return own_recipe(entry.factory, usual, setting.protocol, entry.given)


def _lacks_its_own(setting: Setting, entry: Entry) -> bool:
    """Say whether a method trains in its own way, and the shared backbone was not trained with the very same loss."""
    if not trains_its_own_base(entry.factory):
        return False
    here = None if setting.trained is None else setting.trained.recipe
    return here is None or own_recipe(entry.factory, here, setting.protocol, entry.given).loss != here.loss
