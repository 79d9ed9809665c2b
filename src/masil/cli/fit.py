"""`masil fit`: a folder of photos becomes a model, the base session."""

from pathlib import Path
from typing import Annotated, Any

import typer

from masil.cli import options
from masil.cli.photos import percent, plural, print_json, print_table, read_photos, refuse_overwriting, remarks, say


def fit(
    photos: Annotated[Path, typer.Argument(help="A folder with a folder of photos for each class.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="The model file to write.")],
    backbone: Annotated[str, typer.Option(help="The backbone that looks at the photos.")] = "efficientnet_lite0",
    weights: options.Weights = "imagenet",
    checkpoint: options.Checkpoint = None,
    concepts: Annotated[int, typer.Option(help="Concepts in the bank.")] = 64,
    by: Annotated[str | None, typer.Option(help="Who teaches; else the account's name.", show_default=False)] = None,
    note: Annotated[str, typer.Option(help="A remark for the record.", show_default=False)] = "",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out files that are no photos.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be learnt, and stop.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the model file if there is one.")] = False,
    device: options.Device = "auto",
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print what was learnt as JSON.")] = False,
) -> None:
    """Learn the base session from photos, and write the model to a file.

    The name of a folder is the name of its class. Where the folder is divided into train/ and test/, train/ is used.
    """
    import time

    from masil.hardware import probe

    probe()  # before torch is used: what it finds about the processor holds for this process

    from masil.errors import DataError
    from masil.learner import Masil, editing
    from masil.training import load_trained

    options.refuse_other_backbone(backbone, weights, checkpoint)
    refuse_overwriting(model, force or dry_run)
    found = read_photos(photos, skip_bad=skip_bad)
    for remark in remarks(found):
        say(f"Note: {remark}", json=json)
    if len(found.names) < 2:
        raise DataError(
            f"{photos} has one class, '{found.names[0]}'; to tell classes apart takes at least 2, each in a folder."
        )
    if max(found.counts.values()) < 2:
        raise DataError(
            f"Every class of {photos} has one photo; at least one class needs two, to show how its photos differ."
        )
    if dry_run:
        _foresee(found.counts, model, json)
        return
    with editing(model, new=True) as file:
        refuse_overwriting(model, force)  # another process may have been first
        start = time.monotonic()
        if checkpoint is None:
            learner = Masil(backbone, weights=weights, concepts=concepts, device=device, seed=seed)
        else:
            learner = Masil.from_trained(load_trained(checkpoint), concepts=concepts, device=device, seed=seed)
        learner.fit(found.images, found.labels, taught_by=by, note=note)
        learner.save(file)
    rejector = learner.base_.rejector
    learnt: dict[str, Any] = {
        "model": str(model),
        "classes": len(found.names),
        "images": len(found.images),
        "bytes": file.stat().st_size,
        "seconds": round(time.monotonic() - start, 3),
        "tells_unknown_auroc": None if rejector is None else rejector.auroc,
    }
    if json:
        print_json(learnt)
        return
    say(
        f"Learnt {plural(len(found.names), 'class')} from {plural(len(found.images), 'photo')} in "
        f"{learnt['seconds']:.1f} s; {model} has {learnt['bytes'] / 1e6:.1f} MB."
    )
    say(
        "It cannot tell what it was never taught: for that it needs 3 classes and more photos."
        if rejector is None
        else f"It tells a photo of a class from one of a class never taught in {percent(rejector.auroc)} of pairs."
    )


def _foresee(counts: dict[str, int], model: Path, json: bool) -> None:
    if json:
        print_json({"would_write": str(model), "classes": counts})
        return
    print_table("", ("class", "photos"), counts.items())
    say(f"{plural(len(counts), 'class')}, {plural(sum(counts.values()), 'photo')} would be learnt into {model}.")
