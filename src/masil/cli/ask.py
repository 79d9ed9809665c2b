"""`masil predict`: what is on these photos; `masil evaluate`: how well a model knows its old and new classes."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil.cli import options
from masil.cli.output import listed, print_json, print_table, say
from masil.cli.photos import listed_files, load_model, read_noted
from masil.errors import DataError
from masil.wording import percent, plural

if TYPE_CHECKING:
    from masil.learner import Answer, Evaluation

AT_ONCE = 4096  # photos whose answers are printed together


def predict(
    model: options.Model,
    images: Annotated[list[str], typer.Argument(help="Photos, folders of photos, or - for a list on standard input.")],
    top: Annotated[int, typer.Option(min=1, help="Name this many of the most probable classes.")] = 1,
    always: Annotated[bool, typer.Option("--always", help="Name a class even where it seems never taught.")] = False,
    skip_bad: options.SkipBad = False,
    device: options.Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line, one for each photo.")] = False,
) -> None:
    """Say which class each photo shows, and how sure that is.

    "Unknown" is an answer: the photo looks like nothing that was taught. If a file cannot be read, the others are
    answered all the same, and the exit code is 2.
    """
    learner = load_model(model, device)
    files = listed_files(images)
    bad = 0
    for start in range(0, len(files), AT_ONCE):
        part = files[start : start + AT_ONCE]
        answers = list(zip(part, learner.answer(part, skip_bad=True).ranked(top), strict=True))
        for _, answer in answers:
            if answer.fault:
                bad += 1
                say(f"{'Note' if skip_bad else 'masil'}: {answer.fault}", json=True)
        if json:
            for file, answer in answers:
                print_json(_as_data(file, answer, always), indent=None)
        elif rows := [row for file, answer in answers if not answer.fault for row in _rows(file, answer, always)]:
            print_table("", ("photo", "class", "confidence", "known"), rows, left=2)
    if bad and not skip_bad:
        say(f"masil: {plural(bad, 'file')} of {len(files)} could not be read.", json=True)
        raise typer.Exit(2)


def _as_data(file: Path, answer: "Answer", always: bool) -> dict[str, Any]:
    """Give an answer as plain values."""
    if answer.fault:
        return {"image": str(file), "error": answer.fault}
    top = [{"label": ranked.label, "probability": round(ranked.probability, 6)} for ranked in answer.top]
    unknown = bool(answer.unknown) and not always
    return {
        "image": str(file),
        "label": None if unknown else top[0]["label"],
        "unknown": unknown,
        "confidence": top[0]["probability"],
        "known": None if answer.known is None else round(answer.known, 6),
        "top": top,
    }


def _rows(file: Path, answer: "Answer", always: bool) -> Iterator[tuple[object, ...]]:
    """Give a photo's lines: the answer, then the classes that come next."""
    first, *others = answer.top
    label = f"unknown (nearest: {first.label})" if answer.unknown and not always else first.label
    yield file, label, percent(first.probability), percent(answer.known)
    for ranked in others:
        yield "", f"  {ranked.label}", percent(ranked.probability), ""


def evaluate(
    model: options.Model,
    photos: Annotated[
        Path, typer.Argument(help="A folder with a folder of photos for each class, none of them taught.")
    ],
    worst: Annotated[int, typer.Option(min=0, help="Show this many classes, worst first.")] = 10,
    at_least: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Exit with 1 if fewer of the photos are right.", show_default=False),
    ] = None,
    skip_bad: options.SkipBad = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Test a model on photos that it has not learnt from.

    Old are the classes of the base session, new those of later ones. Classes of the folder that were never taught say
    how often the model notices. Where the folder is divided into train/ and test/, test/ is used.
    """
    learner = load_model(model, device)
    data = read_noted(photos, part="test", skip_bad=skip_bad, json=json)
    if not set(data.names) & set(learner.memory_.labels):
        raise DataError(
            f"The model {model} knows none of the {plural(len(data.names), 'class')} of {photos}, such as "
            f"'{data.names[0]}'; it knows '{learner.memory_.labels[0]}' and others. Are the folders named alike?"
        )
    result = learner.evaluate(data.images, data.labels)
    reached = at_least is None or (result.accuracy or 0) >= at_least
    if json:
        print_json(asdict(result) | {"at_least": at_least, "reached": reached})
    else:
        _show(result, worst)
        if at_least is not None:
            say(f"At least {percent(at_least)} was asked for: {'reached' if reached else 'missed'}.")
    if not reached:
        raise typer.Exit(1)


def _show(result: "Evaluation", worst: int) -> None:
    rows = [
        (f"{plural(result.images, 'photo')}, {plural(result.classes, 'class')}", percent(result.accuracy)),
        ("old classes", percent(result.old)),
        ("new classes", percent(result.new)),
        ("harmonic mean of old and new", percent(result.harmonic_mean)),
    ]
    print_table("", ("", "right"), rows)
    if classes := [(c.label, c.taken_for or "", c.images, percent(c.accuracy)) for c in result.per_class[:worst]]:
        say("")
        print_table("Worst first", ("class", "taken for", "photos", "right"), classes, left=2)
    never = result.never_taught
    if never.classes:
        count, photos = plural(len(never.classes), "class"), plural(never.images, "photo")
        say(f"\nNever taught: {count} ({listed(never.classes)}), {photos}.")
        if never.auroc is not None:
            say(
                f"Of those {percent(never.called_unknown)} are called unknown, of the taught ones "
                f"{percent(never.taught_called_unknown)}; AUROC {never.auroc:.3f}."
            )
    if result.untested:
        say(f"\nNo photo tests {plural(len(result.untested), 'class')} that the model knows.")
