"""`masil undo`: the last session as if it had not been."""

from pathlib import Path
from typing import Annotated

import typer

from masil.cli.photos import plural, print_json, say, shown


def undo(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    by: Annotated[str | None, typer.Option(help="Who takes it back; else the account.", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be undone, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was undone as JSON.")] = False,
) -> None:
    """Take the last session back. The record keeps that it was taught and undone."""
    from masil.learner import Masil, editing

    with editing(model) as file:
        learner = Masil.load(file)
        record = learner.undo(by=by)
        if not dry_run:
            learner.save(file)
    if json:
        print_json({"session": record.number, "images": dict(record.images), "undone": not dry_run})
        return
    names = ", ".join(shown(label) for label in record.classes[:5]) + (", …" if len(record.classes) > 5 else "")
    say(
        f"Session {record.number} ({plural(len(record.classes), 'class')}: {names}) {'would be' if dry_run else 'is'} "
        f"undone; {model} {'would know' if dry_run else 'knows'} {plural(len(learner.memory_.labels), 'class')}."
    )
