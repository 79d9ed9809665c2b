"""`masil predict`: what is on these photos, how sure that is, or that it was never taught."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil.cli import options
from masil.cli.photos import listed_files, load_model, percent, plural, print_json, print_table, say

if TYPE_CHECKING:
    from masil.learner import Masil

AT_ONCE = 4096  # photos whose answers are printed together


def predict(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    images: Annotated[list[str], typer.Argument(help="Photos, folders of photos, or - for a list on standard input.")],
    top: Annotated[int, typer.Option(min=1, help="Name so many of the likeliest classes.")] = 1,
    always: Annotated[bool, typer.Option("--always", help="Name a class even where it seems never taught.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Pass over files that are no photos.")] = False,
    device: options.Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line, one for each photo.")] = False,
) -> None:
    """Say which class each photo shows, and how sure that is.

    "Unknown" is an answer: the photo looks like nothing that was taught. If a file cannot be read, the others are
    answered all the same, and the exit code is 2.
    """
    from masil.errors import InputError

    learner = load_model(model, device)
    files = list(listed_files(images))
    if not files:
        raise InputError(f"There is no photo in {', '.join(images)}.")
    bad = 0
    for answers in _answers(learner, files, top, always):
        failed = [each for each in answers if "error" in each]
        bad += len(failed)
        for each in failed:
            say(f"{'Note' if skip_bad else 'masil'}: {each['error']}", json=True)
        if json:
            for each in answers:
                print_json(each, indent=None)
        elif rows := [row for each in answers if "error" not in each for row in _rows(each)]:
            print_table("", ("photo", "class", "confidence", "known"), rows, left=2)
    if bad and not skip_bad:
        say(f"masil: {plural(bad, 'file')} of {len(files)} could not be read.", json=True)
        raise typer.Exit(2)


def _answers(learner: "Masil", files: list[Path], top: int, always: bool) -> Iterator[list[dict[str, Any]]]:
    """Yield answers in the order of the files, some thousand at a time."""
    from masil.errors import DataError

    for start in range(0, len(files), AT_ONCE):
        part = files[start : start + AT_ONCE]
        faults: dict[Path, str] = {}
        try:
            answers = learner.answer(part)
        except DataError:
            if not (faults := _faults(part)):
                raise
            answers = learner.answer([file for file in part if file not in faults])
        best = answers.probabilities.topk(min(top, len(answers.labels)), 1)
        rejected = None if answers.known is None else answers.rejected()
        found: list[dict[str, Any]] = []
        row = 0
        for file in part:
            if file in faults:
                found.append({"image": str(file), "error": faults[file]})
                continue
            ranked = zip(best.indices[row].tolist(), best.values[row].tolist(), strict=True)
            likeliest = [{"label": answers.labels[at], "probability": round(p, 6)} for at, p in ranked]
            unknown = rejected is not None and not always and bool(rejected[row])
            found.append(
                {
                    "image": str(file),
                    "label": None if unknown else likeliest[0]["label"],
                    "unknown": unknown,
                    "confidence": likeliest[0]["probability"],
                    "known": None if answers.known is None else round(float(answers.known[row]), 6),
                    "top": likeliest,
                }
            )
            row += 1
        yield found


def _faults(files: list[Path]) -> dict[Path, str]:
    """Find the files that cannot be read, each with a sentence that says why."""
    from masil.data import decode_image
    from masil.errors import DataError

    faults = {}
    for file in files:
        try:
            decode_image(file, side=1)
        except DataError as error:
            faults[file] = str(error)
    return faults


def _rows(answer: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Give a photo's lines: the answer, then the classes that come next."""
    known = "–" if answer["known"] is None else percent(answer["known"])
    first, *others = answer["top"]
    label = f"unknown (nearest: {first['label']})" if answer["unknown"] else str(first["label"])
    yield answer["image"], label, percent(first["probability"]), known
    for each in others:
        yield "", f"  {each['label']}", percent(each["probability"]), ""
