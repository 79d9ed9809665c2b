"""Every command in a few lines over a room's door; rooms are imported inside commands, so that help answers at once."""

import os
import sys
from typing import Annotated

import typer

from masil import __version__
from masil.cli.bench import bench
from masil.cli.doctor import doctor
from masil.cli.evaluate import evaluate
from masil.cli.explain import explain
from masil.cli.export import export
from masil.cli.fit import fit
from masil.cli.forget import forget
from masil.cli.info import info
from masil.cli.learn import learn
from masil.cli.list import list_names
from masil.cli.predict import predict
from masil.cli.report import report
from masil.cli.run import run
from masil.cli.serve import serve
from masil.cli.train import train
from masil.cli.tune import tune
from masil.cli.undo import undo
from masil.errors import MasilError
from masil.hardware import prepare

app = typer.Typer(
    name="masil",
    help="Teach an image classifier new classes from five photos each, without forgetting the old ones.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (fit, learn, predict, explain, evaluate, info, undo, forget, export):
    app.command(rich_help_panel="Your photos")(command)
app.command()(run)
app.command()(bench)
app.command()(train)
app.command()(tune)
app.command()(report)
app.command("list")(list_names)
app.command(rich_help_panel="Your photos")(serve)
app.command()(doctor)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"masil {__version__}")
        raise typer.Exit


@app.callback()
def settings(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Settings of every command."""
    if debug:
        os.environ["MASIL_DEBUG"] = "1"


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
