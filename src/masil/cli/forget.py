"""`masil forget`: a class erased from every session."""

from pathlib import Path
from typing import Annotated

import typer

from masil.cli.photos import plural, print_json, say, shown


def forget(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    label: Annotated[str, typer.Argument(metavar="CLASS", help="The class to forget.")],
    by: Annotated[str | None, typer.Option(help="Who forgets it; else the account.", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be forgotten, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was forgotten as JSON.")] = False,
) -> None:
    """Erase a class. This cannot be undone: the record keeps only its name and how many photos it had."""
    from masil.learner import Masil, editing

    with editing(model) as file:
        learner = Masil.load(file)
        own = next((each for each in learner.memory_.labels if str(each) == label), label)  # classes may be numbers
        learner.forget(own, by=by)
        if not dry_run:
            learner.save(file)
    images = learner.log_[-1].images[0][1]
    if json:
        print_json({"class": own, "images": images, "forgotten": not dry_run})
        return
    say(
        f"'{shown(own)}' ({plural(images, 'photo')}) {'would be' if dry_run else 'is'} forgotten; {model} "
        f"{'would know' if dry_run else 'knows'} {plural(len(learner.memory_.labels), 'class')}."
    )
