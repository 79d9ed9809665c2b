"""`masil reproduce`: the paper's tables and figures by one command, and what of its claims holds."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from masil.cli import options
from masil.cli.output import log_stages, print_table, say, say_failures
from masil.wording import duration

if TYPE_CHECKING:
    from masil.benchmark import RunRecord


BudgetName = StrEnum("BudgetName", ["quick", "leg", "full"])
PARTS = "table1, table2, table3, ablation, figure, concepts, all, or characters: a small one that needs no download."


def reproduce(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for base sessions, runs and the page.")],
    parts: Annotated[list[str] | None, typer.Argument(help=f"{PARTS}  By default all.", show_default=False)] = None,
    budget: Annotated[
        BudgetName, typer.Option(help="quick: an hour in all; leg: 2.5 hours a base session; full: the paper's epochs.")
    ] = BudgetName.quick,
    only: Annotated[
        list[str] | None, options.option(text="Play only this data set, such as cifar100. May be repeated.")
    ] = None,
    draws: Annotated[int, typer.Option(min=2, help="Draws of the shots, over which intervals are taken.")] = 5,
    jobs: options.Jobs = None,
    weights: Annotated[
        Path | None,
        options.option(
            text="ImageNet weights of ResNet-18, for CUB-200; else weights/resnet18_imagenet.safetensors of the data."
        ),
    ] = None,
    data: options.Data = None,
    download: options.Download = False,
    device: options.Device = "auto",
    plan: Annotated[bool, typer.Option("--plan", help="Only say what is to be trained and how long it takes.")] = False,
) -> None:
    """Reproduce the paper: train its base sessions, play its tables, and say which of its claims hold.

    You can stop it at any time: the same command continues. Under torchrun all processes train base sessions as one.
    """
    from masil.benchmark import (
        ALL,
        BUDGETS,
        estimate_seconds,
        plan_reproduction,
        play_base,
        side_by_side,
        train_all,
        trained_setting,
        with_weights,
    )
    from masil.data import data_root, load
    from masil.report import check_drawing, write_reproduction

    options.refuse_unwritable(out)
    log_stages("benchmark", "cli", "training", always=True)
    chosen = BUDGETS[budget.value]
    asked = [part for name in parts or ["all"] for part in (ALL if name == "all" else (name,))]
    file = weights or data_root(data) / "weights" / "resnet18_imagenet.safetensors"
    planned = with_weights(plan_reproduction(dict.fromkeys(asked), chosen, out, only or ()), file)
    datasets = {name: load(name, data, download=download) for name in {base.protocol.dataset for base in planned}}
    check_drawing()  # now rather than after hours: the page has figures
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    times = estimate_seconds(planned, datasets, device) if alone else []
    if alone:
        rows = []
        for base, time in zip(planned, times, strict=True):
            epochs, left = f"{base.epochs_done} of {base.recipe.epochs}", duration(time) if time else "done"
            rows.append((base.recipe.name, epochs, left, ", ".join(base.methods)))
        print_table("Base sessions", ("recipe", "epochs", "still takes", "rows"), rows, left=4)
        together = side_by_side(planned, device, jobs)
        beside = f" if one follows the other; {together} are trained at a time" if together > 1 else ""
        say(f"Base sessions take about {duration(sum(times))} more on this machine, before anything is played{beside}.")
    if plan:
        return
    runs: dict[Path, list[RunRecord]] = {}  # by base session, in whatever order these end
    records: list[RunRecord] = []
    failed: dict[tuple[str, int | None], str] = {}
    pairs = [(base, datasets[base.protocol.dataset]) for base in planned]
    bases = train_all(pairs, device, jobs)
    # Where processes train as one, nothing is played before all is trained: the others would wait for the first.
    for base, trained in bases if alone else list(bases):
        setting = trained_setting(base, datasets[base.protocol.dataset], trained, device)
        if os.environ.get("RANK", "0") == "0":
            grid = play_base(base, setting, chosen, draws=draws, out=out, workers=jobs)
            runs[base.folder] = grid.runs
            records = [record for plan in planned for record in runs.get(plan.folder, ())]
            failed |= {(f"{method} on {base.recipe.name}", draw): why for (method, draw), why in grid.failed.items()}
        if records:
            page = write_reproduction(records, list(dict.fromkeys(asked)), chosen, out)
    if records:
        say(f"The page is {page}.")
    say_failures(failed)
    if failed:
        say("The same command tries what failed again and nothing else.")
        raise typer.Exit(1)
