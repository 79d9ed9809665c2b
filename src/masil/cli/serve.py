"""`masil serve`: the studio, a page in the browser and REST, over one model."""

from pathlib import Path
from typing import Annotated

import typer

from masil.cli import options


def serve(
    model: Annotated[Path, typer.Argument(help="The model file; what is taught is saved to it.")],
    host: Annotated[str, typer.Option(help="The address to listen at; any but this machine's own needs --token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="What every request must carry; 'auto' makes one.", envvar="MASIL_TOKEN", show_default=False),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name under which it may be opened, besides localhost.", show_default=False),
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Open a model to the browser: ask, teach, ask why, take back. Ctrl-C ends it."""
    import importlib.util
    import logging

    from masil.errors import InputError

    needed = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")
    if any(importlib.util.find_spec(package) is None for package in needed):
        raise InputError("The studio needs packages that are not installed; get them with: pip install 'masil[studio]'")

    from masil.hardware import probe

    probe()  # before torch is used: what it finds about the processor holds for this process

    from masil.studio import serve as run

    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    run(
        model, host=host, port=port, token=token, names=name or (), device=device,
        say=lambda where: typer.echo(f"{model.name} is at {where}  (Ctrl-C ends it)"),
    )  # fmt: skip
