"""`masil serve`: the studio, a page in the browser and REST, over one model."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from masil.cli import options
from masil.cli.output import log_stages, say
from masil.errors import InputError
from masil.hardware import import_torch
from masil.wording import missing_extra


def serve(
    model: Annotated[Path, typer.Argument(help="The model file; what you teach is saved to it.")],
    host: Annotated[
        str, typer.Option(help="The address to listen at; any other than this machine's needs --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="What every request must carry; 'auto' makes one.", envvar="MASIL_TOKEN", show_default=False),
    ] = None,
    name: Annotated[
        list[str] | None, options.option(text="Another host name than localhost under which it may be opened.")
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Open a model in the browser: ask it, teach it, ask why, take things back. Ctrl-C ends it."""
    needed = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")
    if any(importlib.util.find_spec(package) is None for package in needed):
        raise InputError(missing_extra("The studio is", "studio"))

    import_torch()
    from masil.studio import serve as open_studio

    log_stages()
    open_studio(
        model, host=host, port=port, token=token, names=name or (), device=device,
        say=lambda address: say(f"{model.name} is at {address}  (Ctrl-C ends it)"),
    )  # fmt: skip
