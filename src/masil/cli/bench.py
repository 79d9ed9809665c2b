"""`masil bench`: methods × draws of one protocol, in parallel; finished cells are never played again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from masil.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from masil.benchmark import RunRecord


def bench(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for cells, records and the report.")],
    protocol: Annotated[str, typer.Option(help=options.ProtocolName)] = "characters",
    base: options.Base = None,
    way: options.Way = None,
    shot: options.Shot = None,
    methods: Annotated[
        str, typer.Option(help="Names with commas between, 'all', or classes of your own as my.py:SimpleShot.")
    ] = "all",
    draws: Annotated[
        int | None, typer.Option(help="Play this many draws of the shots; 5 if nothing is said.", show_default=False)
    ] = None,
    standard: Annotated[bool, typer.Option("--standard", help="Play the field's standard shots instead.")] = False,
    backbone: options.Backbone = "efficientnet_lite0",
    weights: options.Weights = "imagenet",
    checkpoint: options.Checkpoint = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Train base sessions by this recipe: the shared one if no checkpoint is given, and one for each "
            "method that trains in its own way.",
            show_default=False,
        ),
    ] = None,
    data: options.Data = None,
    parameters: options.Set = None,
    seed: options.MethodSeed = 0,
    flip: options.Flip = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="Cells at a time; else one a core.", show_default=False)
    ] = None,
    download: options.Download = False,
    device: options.Device = "auto",
) -> None:
    """Judge many methods by one protocol. Stop it whenever you like: the same command goes on where it was."""
    from masil.hardware import probe

    probe()  # before torch is used: what it finds about the processor holds for this process

    from rich.console import Console

    from masil.benchmark import bench as play_grid
    from masil.benchmark import prepare
    from masil.cli.run import keep_report, notes
    from masil.data import has_standard_shots
    from masil.errors import InputError
    from masil.methods import METHODS, find_method, trains_its_own_base
    from masil.report import check_drawing

    options.refuse_other_backbone(backbone, weights, checkpoint, recipe)
    options.refuse_file(out)
    if draws is not None and standard:
        raise InputError(f"--draws {draws} and --standard name different shots; give one of the two.")
    check_drawing()  # now rather than after the last cell: the report has figures
    shape, dataset = options.find_protocol(protocol, base, way, shot)
    if standard and not has_standard_shots(shape.dataset):
        raise InputError(f"The field has no standard shots of '{shape.dataset}'; play draws of them with --draws.")
    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",") if name.strip()]
    chosen = dict(find_method(name) for name in names)
    own = [name for name, method in chosen.items() if trains_its_own_base(method)]
    if checkpoint is not None and recipe is not None and not own:
        raise InputError(f"--recipe {recipe} has no effect beside --checkpoint: no method here trains in its own way.")
    setting = prepare(
        shape, backbone=backbone, weights=weights, checkpoint=checkpoint, data=data, download=download, flip=flip,
        device=device, recipe=recipe if checkpoint is None else None, folder=out / "base", dataset=dataset,
    )  # fmt: skip
    console = Console()
    notes(setting, console, standard=standard)
    failures: list[str] = []

    def failed(method: str, draw: int | None, sentence: str) -> None:
        failures.append(f"{method}, {'standard shots' if draw is None else f'draw {draw}'}: failed: {sentence}")

    shots: int | list[int | None] = [None] if standard else 5 if draws is None else draws
    records = play_grid(
        setting, chosen, shots, out=out, seed=seed, recipe=recipe, jobs=jobs, failed=failed,
        parameters=options.read_parameters(parameters, list(chosen)),
    )  # fmt: skip
    if records:
        _show(records, console)
        keep_report(out, console)
    for sentence in failures:
        console.print(sentence, style="red", soft_wrap=True)
    if failures:
        console.print("The same command tries the failed cells again and no other.")
        raise typer.Exit(1)


def _show(records: "list[RunRecord]", console: "Console") -> None:
    """Print the grid: one line a method."""
    from rich.table import Table

    from masil.benchmark import summary
    from masil.cli.run import figure

    first = records[0]
    title = f"{first.protocol} on {first.backbone}, {first.way}-way {first.shot}-shot, %"
    table = Table("method", "draws", "last", "average", "harmonic mean", "time", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for record in records:
        total = summary(record.draws)
        figures = [figure(total, name) for name in ("last", "average", "harmonic_mean")]
        table.add_row(record.method, str(total["draws"]), *figures, f"{record.seconds:.1f} s")
    console.print(table)
