"""`masil info`: what a model knows, who taught it, and how it sees."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil.cli.photos import percent, plural, print_json, print_table, say

if TYPE_CHECKING:
    from masil.learner import Masil


def info(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    classes: Annotated[bool, typer.Option("--classes", help="List every class.")] = False,
    log: Annotated[bool, typer.Option("--log", help="List all that was ever taught, undone and forgotten.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Describe a model: its classes and sessions, its backbone, and how well it tells what it was never taught."""
    from masil.learner import Masil

    learner = Masil.load(model)
    about = describe(learner) | {"model": str(model), "bytes": model.stat().st_size}
    if json:
        print_json(about)
        return
    unknown = about["tells_unknown_auroc"]
    say(
        f"{model}: {plural(len(about['classes']), 'class')}, {about['bytes'] / 1e6:.1f} MB, sees through "
        f"{about['backbone'] or 'activations of yours'}, thinks in {plural(about['concepts'], 'concept')}.\n"
        + ("It cannot tell what it was never taught." if unknown is None else
           f"It tells photos of its classes from others in {percent(unknown)} of pairs.")
    )  # fmt: skip
    rows = [
        (each["session"], each["when"], each["who"], each["note"], len(each["images"]), sum(each["images"].values()))
        for each in about["sessions"]
    ]
    print_table("", ("session", "when", "who", "note", "classes", "photos"), rows, left=4)
    if classes:
        print_table("", ("class", "photos"), [(each["label"], each["images"]) for each in about["classes"]])
    if log:
        lines = [
            (each["what"], each["when"], each["who"], ", ".join(map(str, each["images"])), sum(each["images"].values()))
            for each in about["log"]
        ]
        print_table("", ("what", "when", "who", "classes", "photos"), lines, left=4)


def describe(learner: "Masil") -> dict[str, Any]:
    """Give all that `info` says, as plain values."""
    memory, base, backbone = learner.memory_, learner.base_, learner.encoder_.backbone
    return {
        "classes": [
            {"label": label, "images": int(count), "old": bool(old)}
            for label, count, old in zip(memory.labels, memory.counts, memory.base, strict=True)
        ],
        "sessions": [
            {"session": each.number, "when": each.when, "who": each.who, "note": each.note, "images": dict(each.images)}
            for each in learner.sessions_
        ],
        "log": [
            {"what": each.what, "when": each.when, "who": each.who, "session": each.session, "note": each.note,
             "images": dict(each.images)}
            for each in learner.log_
        ],
        "backbone": None if backbone is None else backbone.name,
        "concepts": base.bank.v,
        "embedding": base.embedding.form,
        "temperature": base.temperature,
        "tells_unknown_auroc": None if base.rejector is None else base.rejector.auroc,
        "bytes_per_class": memory.bytes_per_class,
    }  # fmt: skip
