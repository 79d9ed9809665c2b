"""Choices on a trained backbone: some base classes play novel ones to backbones that were trained without them.

A backbone knows the classes that it was trained on, so none of them is new to it, and what is chosen so, a rate or a
strength of balance, does not suit classes that are. Narrower backbones that a recipe trains without them rank choices
as they should be ranked, for a fraction of the time.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from masil.benchmark.base_sessions import BaseSession, train_all
from masil.benchmark.play import draw_data, session_data
from masil.benchmark.setting import HeldOut, Setting, with_base, with_room
from masil.errors import InputError
from masil.methods import Rehearsal, Samples, Task
from masil.protocol import pseudo_novel
from masil.training import Recipe

PLAYS = 2  # divisions of the base classes, each with a backbone
DRAWS = 5  # of the shots, in each
SHARE = 0.4  # of the base classes that play novel
WIDTH = 0.5  # of a network that starts at random; one that starts from weights keeps the width that these have


def with_held_out(setting: Setting, recipe: Recipe, folder: Path, jobs: int | None = None) -> Setting:
    """Give a setting whose methods make their choices on backbones that the recipe trains without what plays novel."""
    if setting.trained is None:
        raise InputError(
            f"Recipe '{recipe.name}' is to train backbones without some base classes, for choices on a backbone that "
            f"was trained on all of them; '{setting.backbone.name}' was trained on none and needs no others."
        )
    plays = list(_plays(setting, recipe, folder))
    pairs = [(base, play.dataset) for base, play in plays]
    trained = {base.folder: result for base, result in train_all(pairs, setting.device, jobs)}
    settings = [with_base(play, trained[base.folder]) for base, play in plays]
    weights = tuple(play.fingerprint for play in settings)
    return replace(setting, held_out=HeldOut(recipe.name, weights, tuple(map(_rehearsal, settings))))


def _plays(setting: Setting, recipe: Recipe, folder: Path) -> Iterator[tuple[BaseSession, Setting]]:
    """Yield the base session of each division, and the setting that it is for."""
    protocol = setting.protocol
    sessions = max(1, round(SHARE * protocol.base_classes / protocol.way))
    narrow = replace(recipe, width=WIDTH) if recipe.weights is None else recipe
    for number in range(PLAYS):
        smaller, dataset = pseudo_novel(protocol, setting.dataset, sessions=sessions, seed=number)
        base = BaseSession(smaller, with_room(narrow, smaller), folder / f"{smaller.name}-{recipe.name}")
        yield base, replace(setting, protocol=smaller, dataset=dataset)


def _rehearsal(setting: Setting) -> Rehearsal:
    """Give the base classes and, for every draw, the sessions of a division."""
    draws = [list(session_data(setting.protocol, data)) for data in draw_data(setting, range(DRAWS)).values()]
    base, last = draws[0][0].taught, draws[0][-1]
    return Rehearsal(
        base=base,
        draws=tuple(tuple(session.taught for session in sessions) for _, *sessions in draws),
        tests=Samples(last.tests.activations, labels=last.truth),
        task=Task(setting.protocol, adapted=True),
    )
