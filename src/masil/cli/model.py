"""`masil info`: what a model knows and who taught it; `masil export`: the whole model as one ONNX graph, checked."""

from pathlib import Path
from typing import Annotated

import typer

from masil.cli import options
from masil.cli.output import print_json, print_table, say
from masil.cli.photos import listed_files, load_model, refuse_overwriting
from masil.wording import percent, plural

SHOWN = ("backbone", "concepts", "embedding", "temperature", "aim", "balance", "bytes_per_class")  # as they are
CHECKED = 16  # photos of --check, at most


def info(
    model: options.Model,
    classes: Annotated[bool, typer.Option("--classes", help="List every class.")] = False,
    log: Annotated[bool, typer.Option("--log", help="List all that was ever taught, undone and forgotten.")] = False,
    json: options.Json = False,
) -> None:
    """Describe a model: its classes and sessions, its backbone, and how well it tells what it was never taught."""
    from masil.learner import Masil

    card, size = Masil.load(model).describe(), model.stat().st_size
    if json:
        print_json(
            {
                "classes": [{"label": c.label, "images": c.images, "old": c.base} for c in card.classes],
                "sessions": [
                    {"session": s.number, "when": s.when, "who": s.who, "note": s.note, "images": dict(s.images)}
                    for s in card.sessions
                ],
                "log": [vars(event) | {"images": dict(event.images)} for event in card.log],
                **{name: getattr(card, name) for name in SHOWN},
                "tells_unknown_auroc": card.unknown_auroc,
                "model": str(model),
                "bytes": size,
            }
        )
        return
    say(
        f"{model}: {plural(len(card.classes), 'class')}, {size / 1e6:.1f} MB, sees through "
        f"{card.backbone or 'activations of yours'}, thinks in {plural(card.concepts, 'concept')}."
    )
    say(
        "It cannot tell what it was never taught." if card.unknown_auroc is None
        else "After its base session it told photos of its classes from others in "
        f"{percent(card.unknown_auroc)} of pairs."
    )  # fmt: skip
    if card.aim is not None:
        what = {"accuracy": "accuracy over all classes", "harmonic": "the harmonic mean of old and new"}[card.aim]
        say(f"It aims at {what}: a balance of {card.balance:g}, chosen on base classes that played new ones.")
    rows = [(s.number, s.when, s.who, s.note, len(s.images), _total(s.images)) for s in card.sessions]
    print_table("", ("session", "when", "who", "note", "classes", "photos"), rows, left=4)
    if classes:
        print_table("", ("class", "photos"), [(c.label, c.images) for c in card.classes])
    if log:
        lines = [(e.what, e.when, e.who, ", ".join(str(label) for label, _ in e.images), _total(e.images))
                 for e in card.log]  # fmt: skip
        print_table("", ("what", "when", "who", "classes", "photos"), lines, left=4)


def _total(images: tuple[tuple[str | int, int], ...]) -> int:
    return sum(count for _, count in images)


def export(
    model: options.Model,
    onnx: Annotated[Path, typer.Option("--onnx", help="The ONNX file to write.")],
    check: Annotated[
        list[str] | None, options.option(text="Photos, or a folder of some, on which the graph is checked.")
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Write backbone, g and class vectors as one graph: pixels in, probabilities out, no masil needed to run it.

    Class names and how to make pixels of a photo are in the graph's metadata. ONNX Runtime must compute the same as
    PyTorch, on noise and on the photos of --check, before the file is written.
    """
    from masil.data import read_images
    from masil.learner import export_onnx
    from masil.storage import write_bytes

    refuse_overwriting(onnx, force)
    learner = load_model(model, "cpu")
    backbone = learner.encoder_.backbone
    assert backbone is not None
    files = listed_files(check)[:CHECKED] if check else []
    content = export_onnx(learner, read_images(files).load(slice(None), backbone.framing) if files else None)
    write_bytes(onnx, content)
    k = len(learner.memory_.labels)
    if json:
        print_json({"onnx": str(onnx), "bytes": len(content), "classes": k, "checked_photos": len(files)})
        return
    checked = f"{plural(len(files), 'photo')} and noise" if files else "noise"
    say(
        f"{onnx} has {plural(k, 'class')} and {len(content) / 1e6:.1f} MB; ONNX Runtime computes the same as PyTorch "
        f"with it, on {checked}."
    )
