"""`masil list`: what can be named on the command line, packages of others included."""

from enum import StrEnum
from typing import Annotated

import typer


class Kind(StrEnum):
    """What there are several of."""

    methods = "methods"
    recipes = "recipes"
    backbones = "backbones"
    protocols = "protocols"


def list_names(kind: Annotated[Kind, typer.Argument(help="Which names to list.")]) -> None:
    """List the methods, recipes, backbones or protocols that can be named, with a line on each."""
    from rich.console import Console
    from rich.table import Table

    lines = {Kind.methods: _methods, Kind.recipes: _recipes, Kind.backbones: _backbones, Kind.protocols: _protocols}
    table = Table("name", "what it is", box=None, pad_edge=False)
    for name, line in lines[kind]().items():
        table.add_row(name, line)
    Console().print(table)


def _methods() -> dict[str, str]:
    from masil.methods import METHODS

    return {name: _first_line(METHODS[name]) for name in METHODS}


def _recipes() -> dict[str, str]:
    from masil.training import RECIPES

    return {
        name: f"{recipe.backbone}, {', '.join(f'{epochs} epochs at {px} px' for epochs, px in recipe.stages)}"
        for name, recipe in RECIPES.items()
    }


def _backbones() -> dict[str, str]:
    from masil.backbones import BACKBONES

    return {name: _first_line(getattr(BACKBONES[name], "func", BACKBONES[name])) for name in BACKBONES}


def _protocols() -> dict[str, str]:
    from masil.protocol import PROTOCOLS

    return {
        name: f"{p.base_classes} base classes of {p.dataset}, then {p.sessions} × {p.way} classes of {p.shot} images"
        for name, p in PROTOCOLS.items()
    }


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]
