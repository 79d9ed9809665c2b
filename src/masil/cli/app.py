"""Every command in a few lines over a room's door; rooms are imported inside commands, so that help answers at once."""

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from masil import __version__
from masil.cli.ask import evaluate, predict
from masil.cli.doctor import doctor
from masil.cli.explain import explain
from masil.cli.list import list_names
from masil.cli.model import export, info
from masil.cli.report import report
from masil.cli.reproduce import reproduce
from masil.cli.run import bench, run
from masil.cli.serve import serve
from masil.cli.teach import fit, forget, learn, undo
from masil.cli.train import train, tune
from masil.errors import MasilError
from masil.hardware import prepare

app = typer.Typer(
    name="masil",
    help="Teach an image classifier new classes from five photos each, without forgetting the old ones.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


command: Callable[..., None]
for command in (fit, learn, predict, explain, evaluate, info, undo, forget, export, serve):
    app.command(rich_help_panel="Your photos")(command)
for command in (run, bench, train, tune, report, reproduce):
    app.command(rich_help_panel="Benchmarks")(command)
app.command("list", rich_help_panel="Benchmarks")(list_names)
app.command()(doctor)
# The commands that compute nothing, or ask the hardware themselves.
WITHOUT_PROBE = ("info", "undo", "forget", "report", "list", "doctor")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"masil {__version__}")
        raise typer.Exit


@app.callback()
def settings(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Settings of every command."""
    if debug:
        os.environ["MASIL_DEBUG"] = "1"
    if context.invoked_subcommand not in WITHOUT_PROBE and not {"-h", "--help"} & set(sys.argv):
        from masil.hardware import probe

        probe()  # before torch is used: what it finds about the processor holds for this process


def main() -> None:
    """Run the command line. An error of masil's family is one sentence and exit code 2; Ctrl-C is exit code 130."""
    prepare()  # before torch is imported: what it sets surely holds then
    try:
        app()
    except MasilError as error:
        if os.environ.get("MASIL_DEBUG"):
            raise
        sys.stderr.write(f"masil: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("masil: stopped.\n")
        sys.exit(130)
