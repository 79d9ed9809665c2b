"""`masil evaluate`: how well a model knows its old and new classes, and whether it notices what was never taught."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil.cli import options
from masil.cli.photos import load_model, percent, plural, print_json, print_table, read_photos, say

if TYPE_CHECKING:
    from masil.learner import Masil


def evaluate(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    photos: Annotated[
        Path, typer.Argument(help="A folder with a folder of photos for each class, none of them taught.")
    ],
    worst: Annotated[int, typer.Option(min=0, help="Show so many classes, worst first.")] = 10,
    at_least: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Exit with 1 if fewer of the photos are right.", show_default=False),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out files that are no photos.")] = False,
    device: options.Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Test a model on photos that it has not learnt from.

    Old are the classes of the base session, new those of later ones. Classes of the folder that were never taught say
    how often the model notices. Where the folder is divided into train/ and test/, test/ is used.
    """
    from masil.errors import DataError

    learner = load_model(model, device)
    found = read_photos(photos, skip_bad=skip_bad, split="test")
    for remark in found.notes:
        say(f"Note: {remark}", json=json)
    if not set(found.names) & set(learner.memory_.labels):
        raise DataError(
            f"The model {model} knows none of the {plural(len(found.names), 'class')} of {photos}, such as "
            f"'{found.names[0]}'; it knows '{learner.memory_.labels[0]}' and others. Are the folders named alike?"
        )
    result = judge(learner, found.images, found.labels)
    reached = at_least is None or result["accuracy"] >= at_least
    if json:
        print_json(result | {"at_least": at_least, "reached": reached})
    else:
        _show(result, worst)
        if at_least is not None:
            say(f"At least {percent(at_least)} was asked for: {'reached' if reached else 'missed'}.")
    if not reached:
        raise typer.Exit(1)


def judge(learner: "Masil", images: Any, labels: list[str]) -> dict[str, Any]:
    """Compare answers with labels: shares between 0 and 1, None where there is nothing to count."""
    from masil.learner import auroc
    from masil.protocol import harmonic_mean

    answers = learner.answer(images)
    memory = learner.memory_
    base = {label for label, old in zip(memory.labels, memory.base.tolist(), strict=True) if old}
    taught = set(memory.labels)
    named = [memory.labels[at] for at in answers.probabilities.argmax(1).tolist()]
    right = {"all": list[bool](), "old": list[bool](), "new": list[bool]()}
    by_class: dict[str, list[str]] = {}
    for truth, answer in zip(labels, named, strict=True):
        if truth in taught:
            for group in ("all", "old" if truth in base else "new"):
                right[group].append(answer == truth)
            by_class.setdefault(truth, []).append(str(answer))
    old, new = _share(right["old"]), _share(right["new"])
    never = sorted(set(labels) - taught)
    unknown: dict[str, Any] = {"classes": never, "images": sum(label not in taught for label in labels)}
    if answers.known is not None:
        import torch

        seen = torch.tensor([label in taught for label in labels])
        rejected, known = answers.rejected(), answers.known
        unknown |= {
            "called_unknown": _share(rejected[~seen].tolist()),
            "taught_called_unknown": _share(rejected[seen].tolist()),
            "auroc": auroc(known[seen], known[~seen]) if never else None,
        }
    return {
        "images": len(right["all"]),
        "classes": len(by_class),
        "accuracy": _share(right["all"]),
        "old": old,
        "new": new,
        "harmonic_mean": None if old is None or new is None else harmonic_mean(old, new),
        "never_taught": unknown,
        "untested": [str(label) for label in memory.labels if label not in by_class],
        "per_class": sorted((_class(label, found) for label, found in by_class.items()), key=lambda c: c["accuracy"]),
    }


def _class(label: str, answers: list[str]) -> dict[str, Any]:
    wrong = [answer for answer in answers if answer != label]
    taken = max(sorted(set(wrong)), key=wrong.count) if wrong else None
    return {
        "label": label, "images": len(answers), "accuracy": 1 - len(wrong) / len(answers), "taken_for": taken
    }  # fmt: skip


def _share(right: list[bool]) -> float | None:
    return sum(right) / len(right) if right else None


def _show(result: dict[str, Any], worst: int) -> None:
    print_table(
        "", ("", "right"),
        [
            (f"{plural(result['images'], 'photo')}, {plural(result['classes'], 'class')}", percent(result["accuracy"])),
            ("old classes", percent(result["old"])),
            ("new classes", percent(result["new"])),
            ("harmonic mean of old and new", percent(result["harmonic_mean"])),
        ],
    )  # fmt: skip
    if rows := [
        (each["label"], each["taken_for"] or "", each["images"], percent(each["accuracy"]))
        for each in result["per_class"][:worst]
    ]:
        say("")
        print_table("Worst first", ("class", "taken for", "photos", "right"), rows, left=2)
    unknown = result["never_taught"]
    if unknown["classes"]:
        names = ", ".join(unknown["classes"][:5]) + (", …" if len(unknown["classes"]) > 5 else "")
        count = plural(len(unknown["classes"]), "class")
        say(f"\nNever taught: {count} ({names}), {plural(unknown['images'], 'photo')}.")
        if unknown.get("auroc") is not None:
            say(
                f"Of those {percent(unknown['called_unknown'])} are called unknown, of the taught ones "
                f"{percent(unknown['taught_called_unknown'])}; AUROC {unknown['auroc']:.3f}."
            )
    if result["untested"]:
        say(f"\nNo photo tests {plural(len(result['untested']), 'class')} that the model knows.")
