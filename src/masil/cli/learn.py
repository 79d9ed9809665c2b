"""`masil learn`: new classes from a few photos each; the old ones stay as they are."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from masil.cli import options
from masil.cli.photos import load_model, plural, print_json, print_table, read_photos, remarks, say

if TYPE_CHECKING:
    from masil.learner import Masil


def learn(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    photos: Annotated[Path, typer.Argument(help="A folder with a folder of photos for each new class.")],
    update: Annotated[bool, typer.Option("--update", help="Let known classes learn from more photos, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be learnt, and stop.")] = False,
    by: Annotated[str | None, typer.Option(help="Who teaches; else the account's name.", show_default=False)] = None,
    note: Annotated[str, typer.Option(help="A remark for the record.", show_default=False)] = "",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out files that are no photos.")] = False,
    device: options.Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print what was learnt as JSON.")] = False,
) -> None:
    """Teach a session of new classes. Of the photos nothing is kept but one vector for each class and its mean.

    For each class it says which known class it may be confused with. `masil undo` takes the session back.
    """
    import time

    from masil.errors import InputError
    from masil.learner import editing

    known = {str(label) for label in load_model(model, device).memory_.labels} if dry_run else set()
    found = read_photos(photos, skip_bad=skip_bad)
    for remark in remarks(found):
        say(f"Note: {remark}", json=json)
    if dry_run:
        _foresee(found.counts, known, update, json)
        return
    with editing(model) as file:
        learner = load_model(file, device)
        again = {name for name in found.names if name in learner.memory_.labels}
        if again and not update:
            raise InputError(
                f"'{min(again)}' is known already; to add photos to it use --update, to replace it `masil forget` it "
                "first. Nothing was learnt."
            )
        start = time.monotonic()
        learner.learn(found.images, found.labels, update=update, taught_by=by, note=note)
        seconds = time.monotonic() - start
        learner.save(file)
    rows = _neighbours(learner, found.counts, again)
    if json:
        print_json({"session": learner.sessions_[-1].number, "seconds": round(seconds, 3), "classes": rows})
        return
    print_table(
        f"Session {learner.sessions_[-1].number}, {seconds:.1f} s",
        ("class", "may be confused with", "photos", "cosine"),
        [(row["label"], row["nearest"], row["images"], f"{row['cosine']:.2f}") for row in rows],
        left=2,
    )
    say(f"{model} knows {plural(len(learner.memory_.labels), 'class')} now. To take this back: masil undo {model}")


def _foresee(counts: dict[str, int], known: set[str], update: bool, json: bool) -> None:
    """Say what a session would teach, changing nothing."""
    new = {name: count for name, count in counts.items() if name not in known}
    again = {name: count for name, count in counts.items() if name in known}
    if json:
        print_json({"would_learn": new, "would_update" if update else "known_already": again})
        return
    rows = [(name, "new", count) for name, count in new.items()]
    rows += [(name, "more photos" if update else "known already; needs --update", n) for name, n in again.items()]
    print_table("", ("class", "", "photos"), rows, left=2)
    say(f"{plural(len(new), 'new class')} would be learnt, {len(again) if update else 0} updated. Nothing was changed.")


def _neighbours(learner: "Masil", counts: dict[str, int], updated: set[str]) -> list[dict[str, object]]:
    """Give each taught class with the class that is nearest to it."""
    memory = learner.memory_
    cosines = memory.vectors @ memory.vectors.T
    cosines.fill_diagonal_(-2.0)
    found = []
    for name, count in counts.items():
        best, at = cosines[memory.labels.index(name)].max(0)
        found.append(
            {
                "label": name, "images": count, "updated": name in updated,
                "nearest": memory.labels[int(at)], "cosine": round(float(best), 4),
            }
        )  # fmt: skip
    return found
