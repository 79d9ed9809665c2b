"""`masil fit`, `learn`, `undo`, `forget`: photos become a model, new classes join it, and things are taken back."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from masil.cli import options
from masil.cli.output import listed, print_json, print_table, say, shown
from masil.cli.photos import load_model, read_noted, refuse_overwriting
from masil.errors import DataError, check_seed
from masil.wording import percent, plural


def fit(
    photos: Annotated[Path, typer.Argument(help="A folder with a folder of photos for each class.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="The model file to write.")],
    backbone: options.Backbone = options.BACKBONE,
    weights: options.Weights = options.WEIGHTS,
    checkpoint: options.Checkpoint = None,
    concepts: Annotated[int, typer.Option(help="The number of concepts in the bank.")] = 64,
    aim: Annotated[
        str | None,
        typer.Option(help="Choose the balance of old and new classes for this: accuracy (of all), or harmonic (mean)."),
    ] = None,
    by: options.By = None,
    note: options.Note = "",
    skip_bad: options.SkipBad = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    device: options.Device = "auto",
    seed: Annotated[int, typer.Option(callback=check_seed, help="The seed of everything random.")] = 0,
    json: options.Json = False,
) -> None:
    """Learn the base session from photos, and write the model to a file.

    The name of a folder is the name of its class. Where the folder is divided into train/ and test/, train/ is used.
    """

    from masil.learner import Masil, edit_model
    from masil.training import load_trained

    options.refuse_other_backbone(backbone, weights, checkpoint)
    refuse_overwriting(model, force or dry_run)
    data = read_noted(photos, skip_bad=skip_bad, json=json)
    if len(data.names) < 2:
        raise DataError(
            f"{photos} has one class, '{data.names[0]}'; to tell classes apart takes at least 2, each in a folder."
        )
    if max(data.counts.values()) < 2:
        raise DataError(
            f"Every class of {photos} has one photo; at least one class needs two, to show how its photos differ."
        )
    what = f"{plural(len(data.names), 'class')}, {plural(len(data.images), 'photo')}"
    if dry_run and json:
        print_json({"would_write": str(model), "classes": data.counts})
    elif dry_run:
        print_table("", ("class", "photos"), data.counts.items())
        say(f"{what} would be learnt into {model}.")
    if dry_run:
        return
    with edit_model(model, new=True) as file:
        refuse_overwriting(model, force)  # another process may have been first
        start = time.monotonic()
        chosen: dict[str, Any] = {"concepts": concepts, "aim": aim, "device": device, "seed": seed}
        if checkpoint is None:
            learner = Masil(backbone, weights=weights, **chosen)
        else:
            learner = Masil.from_trained(load_trained(checkpoint), **chosen)
        learner.fit(data.images, data.labels, taught_by=by, note=note)
        learner.save(file)
    auroc, seconds, size = learner.describe().unknown_auroc, time.monotonic() - start, file.stat().st_size
    if json:
        learnt = {"model": str(model), "classes": len(data.names), "images": len(data.images), "bytes": size}
        print_json(learnt | {"seconds": round(seconds, 3), "tells_unknown_auroc": auroc})
        return
    say(f"Learnt {what.replace(', ', ' from ')} in {seconds:.1f} s; {model} has {size / 1e6:.1f} MB.")
    say(
        "It cannot tell what it was never taught: for that it needs 3 classes and more photos."
        if auroc is None
        else f"It tells a photo of a class from one of a class never taught in {percent(auroc)} of pairs."
    )


def learn(
    model: options.Model,
    photos: Annotated[Path, typer.Argument(help="A folder with a folder of photos for each new class.")],
    update: Annotated[bool, typer.Option("--update", help="Let known classes learn from more photos, too.")] = False,
    dry_run: options.DryRun = False,
    by: options.By = None,
    note: options.Note = "",
    skip_bad: options.SkipBad = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Teach a session of new classes. Of the photos nothing is kept but one vector for each class and its mean.

    For each class it says which known class it may be confused with. `masil undo` takes the session back.
    """

    from masil.data import photo_classes
    from masil.learner import edit_model

    if dry_run:
        known = set(map(str, load_model(model, device).memory_.labels))
        _show_plan(read_noted(photos, skip_bad=skip_bad, json=json).counts, known, update, json)
        return
    with edit_model(model) as file:
        learner = load_model(file, device)
        if not update:
            learner.refuse_known(photo_classes(photos))  # before any photo is opened
        data = read_noted(photos, skip_bad=skip_bad, json=json)
        start = time.monotonic()
        taught = learner.teach(data.images, data.labels, update=update, taught_by=by, note=note)
        seconds = time.monotonic() - start
        learner.save(file)
    if json:
        classes = [
            {"label": c.label, "images": c.images, "updated": c.updated, "nearest": c.nearest[0].label,
             "cosine": round(c.nearest[0].cosine, 4)}
            for c in taught.classes
        ]  # fmt: skip
        print_json({"session": taught.session.number, "seconds": round(seconds, 3), "classes": classes})
        return
    print_table(
        f"Session {taught.session.number}, {seconds:.1f} s",
        ("class", "may be confused with", "photos", "cosine"),
        [(c.label, c.nearest[0].label, c.images, f"{c.nearest[0].cosine:.2f}") for c in taught.classes],
        left=2,
    )
    say(f"{model} knows {plural(len(learner.memory_.labels), 'class')} now. To take this back: masil undo {model}")


def _show_plan(counts: dict[str, int], known: set[str], update: bool, json: bool) -> None:
    """Say what a session would teach."""
    new = {name: count for name, count in counts.items() if name not in known}
    again = {name: count for name, count in counts.items() if name in known}
    if json:
        print_json({"would_learn": new, "would_update" if update else "known_already": again})
        return
    rows = [(name, "new", count) for name, count in new.items()]
    rows += [(name, "more photos" if update else "known already; needs --update", n) for name, n in again.items()]
    print_table("", ("class", "", "photos"), rows, left=2)
    say(f"{plural(len(new), 'new class')} would be learnt, {len(again) if update else 0} updated. Nothing was changed.")


def undo(
    model: options.Model, by: options.By = None, dry_run: options.DryRun = False, json: options.Json = False
) -> None:
    """Take the last session back. The log keeps that it was taught and undone."""
    from masil.learner import Masil, edit_model

    with edit_model(model) as file:
        learner = Masil.load(file)
        record = learner.undo(by=by)
        if not dry_run:
            learner.save(file)
    if json:
        print_json({"session": record.number, "images": dict(record.images), "undone": not dry_run})
        return
    classes = f"{plural(len(record.classes), 'class')}: {listed(record.classes)}"
    say(
        f"Session {record.number} ({classes}) {'would be' if dry_run else 'is'} undone; {model} "
        f"{'would know' if dry_run else 'knows'} {plural(len(learner.memory_.labels), 'class')}."
    )


def forget(
    model: options.Model,
    label: Annotated[str, typer.Argument(metavar="CLASS", help="The class to forget.")],
    by: options.By = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Erase a class. This cannot be undone: the log keeps only its name and how many photos it had."""
    from masil.learner import Masil, edit_model

    with edit_model(model) as file:
        learner = Masil.load(file)
        name = next((known for known in learner.memory_.labels if str(known) == label), label)  # it may be a number
        learner.forget(name, by=by)
        if not dry_run:
            learner.save(file)
    images = learner.log_[-1].images[0][1]
    if json:
        print_json({"class": name, "images": images, "forgotten": not dry_run})
        return
    say(
        f"'{shown(name)}' ({plural(images, 'photo')}) {'would be' if dry_run else 'is'} forgotten; {model} "
        f"{'would know' if dry_run else 'knows'} {plural(len(learner.memory_.labels), 'class')}."
    )
