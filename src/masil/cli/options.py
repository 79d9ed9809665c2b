"""Options that several commands take, each said once."""

from pathlib import Path
from typing import Annotated

import typer

Backbone = Annotated[str, typer.Option(help="The backbone that makes the activations.")]
Weights = Annotated[
    str, typer.Option(help="A weight file of that backbone, or 'imagenet' for the one that came with pip.")
]
Checkpoint = Annotated[
    Path | None, typer.Option(help="A folder of `masil train`, whose backbone is taken instead.", show_default=False)
]
Data = Annotated[
    Path | None, typer.Option(help="Folder of data sets; else MASIL_DATA, else the cache.", show_default=False)
]
Download = Annotated[bool, typer.Option("--download", help="Download the data set if it is not there.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
MethodSeed = Annotated[int, typer.Option(help="Seed of everything else that is random in a method.")]
Flip = Annotated[bool, typer.Option("--flip", help="Average activations over an image and its mirror image.")]
