"""`masil list`: what can be named on the command line, packages of others included."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer

from masil.cli.output import print_table

Kind = StrEnum("Kind", ["methods", "recipes", "backbones", "protocols"])


def list_names(kind: Annotated[Kind, typer.Argument(help="Which names to list.")]) -> None:
    """List the methods, recipes, backbones or protocols that can be named, with a line on each."""
    from masil.backbones import BACKBONES
    from masil.methods import METHODS
    from masil.protocol import PROTOCOLS, Protocol
    from masil.training import RECIPES, Recipe

    tables: dict[Kind, Mapping[str, object]] = {
        Kind.methods: METHODS, Kind.recipes: RECIPES, Kind.backbones: BACKBONES, Kind.protocols: PROTOCOLS
    }  # fmt: skip

    def describe(entry: object) -> str:
        match entry:
            case Protocol():
                novel = f"{entry.sessions} × {entry.way} classes of {entry.shot} images"
                return f"{entry.base_classes} base classes of {entry.dataset}, then {novel}"
            case Recipe():
                return ", ".join([entry.backbone, *(f"{epochs} epochs at {px} px" for epochs, px in entry.stages)])
            case _:
                return (getattr(entry, "func", entry).__doc__ or "").strip().partition("\n")[0]

    print_table("", ("name", "what it is"), [(name, describe(tables[kind][name])) for name in tables[kind]], left=2)
