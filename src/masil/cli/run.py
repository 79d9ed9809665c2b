"""`masil run` and `masil bench`: one method through one protocol, a line a session; or many methods, a line each."""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil.cli import options
from masil.cli.output import log_stages, named_shots, print_table, say, say_failures, table
from masil.errors import InputError
from masil.wording import plural

if TYPE_CHECKING:
    from masil.benchmark import RunRecord, SessionResult, Setting
    from masil.training import Recipe

LOG = logging.getLogger(__name__)
COLUMNS = ("session", "classes", "accuracy", "base", "novel", "harmonic mean", "learnt in")
SHARES = ("accuracy", "base", "novel", "harmonic_mean")


def run(
    protocol: Annotated[str, typer.Argument(help=options.PROTOCOL)] = "characters",
    base: options.Base = None,
    way: options.Way = None,
    shot: options.Shot = None,
    method: Annotated[str, typer.Option(help="The method, or a class in a file of yours: my.py:SimpleShot.")] = "masil",
    backbone: options.Backbone = options.BACKBONE,
    weights: options.Weights = options.WEIGHTS,
    checkpoint: options.Checkpoint = None,
    recipe: options.Recipe = None,
    data: options.Data = None,
    draws: options.Draws = None,
    draw: Annotated[int | None, options.option(text="Play this draw alone; by default the standard shots.")] = None,
    seed: options.Seed = 0,
    views: options.Views = 1,
    flip: options.Flip = False,
    out: Annotated[Path | None, options.option("--out", "-o", text="The folder for run.json and report.html.")] = None,
    parameters: options.Set = None,
    download: options.Download = False,
    device: options.Device = "auto",
) -> None:
    """Judge one method by a protocol: teach a session, test on all classes seen so far, and so on to the last.

    With --out, finished draws are kept, and the same command continues after them.
    """
    from masil.benchmark import Entry, Origin, own_recipe, prepare
    from masil.methods import find_method, trains_its_own_base

    if draws is not None and draw is not None:
        raise InputError(f"--draws {draws} plays draws 0 … and --draw {draw} plays one; give one of the two.")
    if recipe is not None and out is None:
        raise InputError("--recipe trains a base session in OUT/base; name the folder with --out.")
    _begin(out, refused=(backbone, weights, checkpoint, recipe))
    name, factory = find_method(method)
    given = options.read_parameters(parameters, [name])
    entry = Entry.of(factory, given.get(name), name)
    plan = _recipe(recipe, given.get("recipe", {}))
    shape, dataset = options.find_protocol(protocol, base, way, shot)
    its_recipe = None if plan is None else own_recipe(factory, plan, shape, entry.given)
    origin = Origin(backbone, weights, checkpoint, its_recipe, folder=out and out / "base")
    looks = options.count_views(views, flip)
    setting = prepare(shape, origin, dataset=dataset, data=data, download=download, views=looks, device=device)
    if trains_its_own_base(factory) and recipe is None and checkpoint is None:
        say(f"Note: '{name}' trains a base session of its own; --recipe does that. Here it has none.")
    _notes(setting, standard=draws is None and draw is None)
    chosen = {"draws": draws if draw is None else [draw], "seed": seed, "out": out}
    _show(_play(setting, name, {"method": entry, **chosen}))
    if out is not None:
        _keep_report(out)


def bench(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for cells, records and the report.")],
    protocol: Annotated[str, typer.Option(help=options.PROTOCOL)] = "characters",
    base: options.Base = None,
    way: options.Way = None,
    shot: options.Shot = None,
    methods: Annotated[
        str, typer.Option(help="Names separated by commas, 'all', or classes in files of yours: my.py:SimpleShot.")
    ] = "all",
    draws: options.Draws = None,
    standard: Annotated[bool, typer.Option("--standard", help="Play the standard shots, not 5 random draws.")] = False,
    backbone: options.Backbone = options.BACKBONE,
    weights: options.Weights = options.WEIGHTS,
    checkpoint: options.Checkpoint = None,
    recipe: options.Recipe = None,
    without: Annotated[
        str | None,
        options.option(
            text="What methods choose on base classes that play novel, choose on backbones that this recipe trains "
            "without these classes: for a backbone that was trained on all of them."
        ),
    ] = None,
    data: options.Data = None,
    parameters: options.Set = None,
    seed: options.Seed = 0,
    views: options.Views = 1,
    flip: options.Flip = False,
    jobs: options.Jobs = None,
    cluster: Annotated[
        str | None, options.option(text="Play on a dask cluster: the address of its scheduler, as tcp://10.0.0.1:8786.")
    ] = None,
    download: options.Download = False,
    device: options.Device = "auto",
) -> None:
    """Judge many methods by one protocol. You can stop it at any time: the same command continues.

    With --recipe, methods that train a backbone in their own way do so; the others share one.
    """
    from masil.benchmark import Entry, Origin, left_out, prepare, with_held_out
    from masil.benchmark import bench as play_grid
    from masil.data import has_standard_shots
    from masil.methods import METHODS, find_method, trains_its_own_base

    if draws is not None and standard:
        raise InputError(f"--draws {draws} and --standard name different shots; give one of the two.")
    if jobs is not None and cluster is not None:
        raise InputError(f"--jobs {jobs} has no effect here: the workers at {cluster} say how many cells they take.")
    _begin(out, refused=(backbone, weights, checkpoint, recipe))
    shape, dataset = options.find_protocol(protocol, base, way, shot)
    if standard and not has_standard_shots(shape.dataset):
        raise InputError(f"The field has no standard shots of '{shape.dataset}'; play draws of them with --draws.")
    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",") if name.strip()]
    chosen = dict(find_method(name) for name in names)
    given = options.read_parameters(parameters, list(chosen))
    plan = _recipe(recipe, given.get("recipe", {}))
    apart = None if without is None else _recipe_without(without, list(chosen.values()))
    own = [trains_its_own_base(method) for method in chosen.values()]
    if checkpoint is not None and recipe is not None and not any(own):
        raise InputError(f"--recipe {recipe} has no effect beside --checkpoint: no method here trains in its own way.")
    shared = plan if checkpoint is None and not all(own) else None
    origin = Origin(backbone, weights, checkpoint, shared, folder=out / "base")
    looks = options.count_views(views, flip)
    setting = prepare(shape, origin, dataset=dataset, data=data, download=download, views=looks, device=device)
    _notes(setting, standard=standard)
    entries = [Entry.of(method, given.get(name), name) for name, method in chosen.items()]
    if methods == "all":
        reasons = left_out(setting, entries, plan)
        entries = [entry for entry in entries if entry.name not in reasons]
        if reasons:
            say("\n  ".join([f"Note: 'all' leaves out {', '.join(reasons)}:", *dict.fromkeys(reasons.values())]))
    if apart is not None:
        setting = with_held_out(setting, apart, out / "without", jobs)
    grid = play_grid(
        setting, entries,
        [None] if standard else 5 if draws is None else draws, out=out, seed=seed, recipe=plan,
        workers=jobs if cluster is None else cluster,
    )  # fmt: skip
    if grid.runs:
        _show_all(grid.runs)
        _keep_report(out)
    say_failures(grid.failed)
    if grid.failed:
        say("The same command tries the failed cells again and no other.")
        raise typer.Exit(1)


def _recipe_without(name: str, methods: list[Any]) -> "Recipe":
    """Give the recipe of backbones for choices, unless no method makes any on them."""
    from masil.training import recipe as find_recipe

    if not any(getattr(method, "chooses", False) and method.sees == "activations" for method in methods):
        raise InputError(f"--without {name} has no effect: no method here chooses parameters, or only on images.")
    return find_recipe(name)


def _begin(out: Path | None, refused: tuple[str, str, Path | None, str | None]) -> None:
    """Refuse now what would fail after the last session, and let the rooms say their stages."""
    from masil.report import check_drawing

    options.refuse_other_backbone(*refused)
    options.refuse_unwritable(out)
    if out is not None:
        check_drawing()  # the report has figures
    log_stages("benchmark", "cli", "training")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what becomes of a cluster is said in our sentences


def _recipe(name: str | None, changes: Mapping[str, Any]) -> "Recipe | None":
    """Give the recipe of a name with the changes that --set asks for."""
    from masil.training import recipe as find_recipe

    if name is None and changes:
        raise InputError(f"--set recipe.{next(iter(changes))} changes a recipe; name the recipe with --recipe.")
    return None if name is None else options.change_recipe(find_recipe(name), changes)


def _notes(setting: "Setting", *, standard: bool) -> None:
    """Say what there is to know before the first session."""
    for note in setting.dataset.notes:
        say(f"Note: {note}")
    shape, classes = setting.protocol, len(setting.dataset.classes)
    if shape.classes < classes:
        say(
            f"Note: {plural(shape.base_classes, 'base class')} and {plural(shape.sessions, 'session')} of {shape.way} "
            f"leave out {classes - shape.classes} of the {classes} classes of '{setting.dataset.name}'."
        )
    if setting.protocol.sessions and standard:
        listed = setting.dataset.shots is not None
        say("Shots: the field's standard ones." if listed else "Shots: draw 0 (there are no standard ones).")


def _keep_report(out: Path) -> None:
    """Write the report of everything that the folder holds and say where it is."""
    from masil.report import read_results, write_report

    say(f"The records and the report are in {out}: {write_report(read_results(out), out)}")


def _play(setting: "Setting", name: str, arguments: dict[str, Any]) -> "RunRecord":
    """Run with a live table of the draw that is played; where there is no terminal, with a line for each session."""
    from rich.console import Console
    from rich.live import Live

    from masil.benchmark import run as play_draws

    rows: dict[int | None, list[list[str]]] = {}
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:

        def watch(draw: int | None, played: "SessionResult") -> None:
            score = played.score
            shares = ["–" if share is None else f"{100 * share:.2f}" for share in (getattr(score, s) for s in SHARES)]
            LOG.info("%s, session %d: %s %% right.", f"{name}, {named_shots(draw)}", score.session, shares[0])
            classes = setting.protocol.seen(score.session).stop
            rows.setdefault(draw, []).append([str(score.session), str(classes), *shares, _time(played.learn_seconds)])
            title = f"{setting.protocol.name}: {name} on {setting.backbone.name}, {named_shots(draw)}, %"
            if live.console.is_terminal:
                live.update(table(title, COLUMNS, rows[draw], left=0), refresh=True)

        try:
            return play_draws(setting, watch=watch, **arguments)
        except KeyboardInterrupt:
            if arguments["out"] is not None:
                sys.stderr.write(f"masil: finished draws are kept in {arguments['out']}; the same command goes on.\n")
            raise


def _show(record: "RunRecord") -> None:
    """Print a run: its sessions, then what sums them up, with deviations where there are several draws."""
    from masil.benchmark import mean_sessions, summary

    draws = record.draws
    shots = "" if len(draws) == 1 else f", mean ± std of {len(draws)} draws"
    title = f"{record.protocol}: {record.method} on {record.backbone}, {record.way}-way {record.shot}-shot, %{shots}"
    rows = [
        (row["session"], row["classes"], *_figures(row, *SHARES), _time(row["learn_seconds"]))
        for row in mean_sessions(draws)
    ]
    print_table(title, COLUMNS, rows, left=0)
    average, drop, generalised = _figures(summary(draws), "average", "performance_drop", "generalised")
    say(f"average {average}   performance drop {drop}   generalised accuracy {generalised}")


def _show_all(records: "list[RunRecord]") -> None:
    """Print a line for each run."""
    from masil.benchmark import summary

    first, rows = records[0], []
    for record in records:
        figures = _figures(summary(record.draws), "last", "average", "harmonic_mean")
        rows.append((record.method, len(record.draws), *figures, f"{record.seconds:.1f} s"))
    title = f"{first.protocol} on {first.backbone}, {first.way}-way {first.shot}-shot, %"
    print_table(title, ("method", "draws", "last", "average", "harmonic mean", "time"), rows)


def _figures(values: dict[str, Any], *names: str) -> list[str]:
    """Give means, each with its deviation where there is one: "61.32 ± 0.41"."""
    deviations = [f" ± {values[f'{name}_std']:.2f}" if f"{name}_std" in values else "" for name in names]
    return [
        "–" if values[name] is None else f"{values[name]:.2f}{deviation}"
        for name, deviation in zip(names, deviations, strict=True)
    ]


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
