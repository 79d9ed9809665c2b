"""`masil run`: one method through one protocol, a line a session; and what it leaves in a folder."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil.cli import options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from masil.benchmark import RunRecord, SessionResult, Setting
    from masil.methods import Method

COLUMNS = ("session", "classes", "accuracy", "base", "novel", "harmonic mean", "learnt in")


def run(
    protocol: Annotated[str, typer.Argument(help=options.ProtocolName)] = "characters",
    base: options.Base = None,
    way: options.Way = None,
    shot: options.Shot = None,
    method: Annotated[
        str, typer.Option(help="The method to judge, or a class of your own as my.py:SimpleShot.")
    ] = "masil",
    backbone: options.Backbone = "efficientnet_lite0",
    weights: options.Weights = "imagenet",
    checkpoint: options.Checkpoint = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="Train the base session by this recipe first, in OUT/base.", show_default=False),
    ] = None,
    data: options.Data = None,
    draws: Annotated[
        int | None, typer.Option(help="Play this many draws of the shots: 0, 1, 2, …", show_default=False)
    ] = None,
    draw: Annotated[
        int | None, typer.Option(help="Seed of the shots; else the field's standard shots.", show_default=False)
    ] = None,
    seed: options.MethodSeed = 0,
    flip: options.Flip = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for run.json and report.html.", show_default=False)
    ] = None,
    parameters: options.Set = None,
    download: options.Download = False,
    device: options.Device = "auto",
) -> None:
    """Play a whole protocol: teach a session, test on every class seen so far, go on.

    With --out, finished draws are kept; the same command goes on after them.
    """
    from masil.hardware import probe

    probe()  # before torch is used: what it finds about the processor holds for this process

    from rich.console import Console

    from masil.benchmark import own_recipe, prepare
    from masil.errors import InputError
    from masil.methods import find_method, trains_its_own_base
    from masil.report import check_drawing
    from masil.training import recipe as recipe_called

    options.refuse_other_backbone(backbone, weights, checkpoint, recipe)
    options.refuse_file(out)
    if draws is not None and draw is not None:
        raise InputError(f"--draws {draws} plays draws 0 … and --draw {draw} plays one; give one of the two.")
    if recipe is not None and out is None:
        raise InputError("--recipe trains a base session in OUT/base; name the folder with --out.")
    if out is not None:
        check_drawing()  # now rather than after the last session: the report has figures
    method, factory = find_method(method)
    chosen = options.read_parameters(parameters, [method]).get(method, {})
    shape, dataset = options.find_protocol(protocol, base, way, shot)
    setting = prepare(
        shape, backbone=backbone, weights=weights, checkpoint=checkpoint, data=data, download=download, flip=flip,
        device=device, folder=out and out / "base", dataset=dataset,
        recipe=None if recipe is None else own_recipe(factory, recipe_called(recipe), shape, chosen),
    )  # fmt: skip
    console = Console()
    if trains_its_own_base(factory) and recipe is None and checkpoint is None:
        console.print(f"Note: '{method}' trains a base session of its own; --recipe does that. Here it has none.")
    notes(setting, console, standard=draws is None and draw is None)
    arguments = {"draws": draws if draw is None else [draw], "seed": seed, "parameters": chosen, "out": out}
    show(_play(setting, method, factory, arguments, console), console)
    if out is not None:
        keep_report(out, console)


def notes(setting: "Setting", console: "Console", *, standard: bool) -> None:
    """Say what there is to know before the first session."""
    for note in setting.dataset.notes:
        console.print(f"Note: {note}")
    if setting.protocol.sessions and standard:
        listed = setting.dataset.shots is not None
        console.print("Shots: the field's standard ones." if listed else "Shots: draw 0 (there are no standard ones).")


def keep_report(out: Path, console: "Console") -> None:
    """Write the report of everything that the folder holds and say where it is."""
    from masil.report import read_results, write_report

    console.print(f"The records and the report are in {out}: {write_report(read_results(out), out)}", soft_wrap=True)


def _play(
    setting: "Setting", method: str, factory: "type[Method]", arguments: dict[str, Any], console: "Console"
) -> "RunRecord":
    """Run with a live table of the draw under way."""
    from rich.live import Live

    from masil.benchmark import run as play_draws

    tables: dict[int | None, Table] = {}
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def watch(draw: int | None, played: "SessionResult") -> None:
            table = tables.setdefault(draw, _table(_title(setting, method, draw)))
            score = played.score
            row = [score.accuracy, score.base, score.novel, score.harmonic_mean]
            shares = ["–" if share is None else f"{100 * share:.2f}" for share in row]
            classes = setting.protocol.seen(score.session).stop
            table.add_row(str(score.session), str(classes), *shares, _milliseconds(played.learn_seconds))
            live.update(table, refresh=True)

        try:
            return play_draws(setting, factory, name=method, watch=watch, **arguments)
        except KeyboardInterrupt:
            if arguments["out"] is not None:
                sys.stderr.write(f"masil: finished draws are kept in {arguments['out']}; the same command goes on.\n")
            raise


def show(record: "RunRecord", console: "Console") -> None:
    """Print a run: its sessions, then what sums them up, with deviations where there are several draws."""
    from masil.benchmark import mean_sessions, summary

    draws = record.draws
    shots = "" if len(draws) == 1 else f", mean ± std of {len(draws)} draws"
    table = _table(
        f"{record.protocol}: {record.method} on {record.backbone}, {record.way}-way {record.shot}-shot, %{shots}"
    )
    for row in mean_sessions(draws):
        figures = [figure(row, name) for name in ("accuracy", "base", "novel", "harmonic_mean")]
        table.add_row(str(row["session"]), str(row["classes"]), *figures, _milliseconds(row["learn_seconds"]))
    console.print(table)
    total = summary(draws)
    console.print(
        f"average {figure(total, 'average')}   performance drop {figure(total, 'performance_drop')}   "
        f"generalised accuracy {figure(total, 'generalised')}"
    )


def figure(values: dict[str, Any], name: str) -> str:
    """Give a mean, with its deviation where there is one: "61.32 ± 0.41"."""
    if values[name] is None:
        return "–"
    deviation = values.get(f"{name}_std")
    return f"{values[name]:.2f}" + (f" ± {deviation:.2f}" if deviation is not None else "")


def _title(setting: "Setting", method: str, draw: int | None) -> str:
    shots = "standard shots" if draw is None else f"draw {draw}"
    return f"{setting.protocol.name}: {method} on {setting.backbone.name}, {shots}, %"


def _table(title: str) -> "Table":
    from rich.table import Table

    table = Table(*COLUMNS, title=title)
    for column in table.columns:
        column.justify = "right"
    return table


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
