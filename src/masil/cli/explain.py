"""`masil explain`: why this class and not the next, as a picture and as data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil.cli import options
from masil.cli.photos import listed_files, load_model, percent, print_json, print_table, refuse_overwriting, say

if TYPE_CHECKING:
    from masil.learner import Answers, Crop, Explanation, Masil

MOST = 128  # gallery photos that are looked at
GRID = 14  # places a side of a heat map in JSON


def explain(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    image: Annotated[Path, typer.Argument(help="The photo to explain.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The picture to draw, as PNG.", show_default=False)
    ] = (None),
    gallery: Annotated[
        Path | None,
        typer.Option(help="A folder of photos in which to show what each concept looks like.", show_default=False),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=8, help="Show so many concepts.")] = 3,
    force: Annotated[bool, typer.Option("--force", help="Replace the picture if there is one.")] = False,
    device: options.Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the explanation as one JSON object.")] = False,
) -> None:
    """Say which concepts spoke for the class of a photo and against the runner-up, and where each of them lies.

    A model keeps no photo, so what a concept looks like elsewhere can only be shown in photos you give: --gallery.
    """
    import io

    from masil.data import file_images
    from masil.errors import InputError
    from masil.files import write_bytes
    from masil.learner import draw

    if out is not None:
        refuse_overwriting(out, force)
    elif not json:
        raise InputError("Name the picture to draw with -o why.png, or ask for data with --json.")
    learner = load_model(model, device)
    backbone = learner.encoder_.backbone
    assert backbone is not None
    from torch import zeros

    photo = file_images(Path(), [str(image)], zeros(1))
    answers = learner.answer(photo)
    explanation = learner.explain(photo, count)
    crops = None if gallery is None else _crops(learner, gallery, explanation.concepts)
    if out is not None:
        picture = draw(explanation, photo.load([0], backbone.framing)[0], sure=_sure(answers), crops=crops)
        file = io.BytesIO()
        picture.save(file, "PNG")
        write_bytes(out, file.getvalue())
    if json:
        print_json(as_data(image, answers, explanation, crops))
        return
    say(f"{explanation.label}, rather than {explanation.runner_up or 'nothing else'}: {_sure(answers)}.")
    rows = [(f"concept {j}", f"{float(explanation.contributions[j]):+.3f}") for j in explanation.concepts]
    rows += [("all other concepts", f"{_others(explanation):+.3f}"), ("no concept", f"{explanation.rest:+.3f}")]
    rows += [("balance of classes", f"{explanation.offset:+.3f}"), ("lead", f"{explanation.difference:+.3f}")]
    print_table("", ("what", "adds to the lead"), rows)
    say(f"The picture is {out}.")


def as_data(
    image: Path, answers: "Answers", explanation: "Explanation", crops: "tuple[tuple[Crop, ...], ...] | None"
) -> dict[str, Any]:
    """Give an explanation as plain values; a heat map is a grid of shares of its largest value."""
    from torch.nn.functional import adaptive_avg_pool2d

    assert explanation.heat is not None
    best = answers.probabilities[0].max()
    concepts: list[dict[str, Any]] = []
    for place, j in enumerate(explanation.concepts):
        warm = adaptive_avg_pool2d(explanation.heat[place].clamp_min(0)[None, None], GRID)[0, 0]
        heat = (warm / warm.max().clamp_min(1e-12)).tolist()
        concepts.append(
            {
                "concept": j,
                "contribution": float(explanation.contributions[j]),
                "coefficient": float(explanation.coefficients[j]),
                "heat": [[round(value, 3) for value in row] for row in heat],
            }
        )
        if crops is not None:
            concepts[-1]["crops"] = [
                {"image": crop.image, "box": list(crop.box), "coefficient": crop.coefficient} for crop in crops[place]
            ]
    return {
        "image": str(image),
        "label": explanation.label,
        "runner_up": explanation.runner_up,
        "unknown": answers.known is not None and bool(answers.rejected()[0]),
        "confidence": float(best),
        "known": None if answers.known is None else float(answers.known[0]),
        "lead": explanation.difference,
        "concepts": concepts,
        "other_concepts": _others(explanation),
        "rest": explanation.rest,
        "offset": explanation.offset,
        "contributions": [round(value, 6) for value in explanation.contributions.tolist()],
    }


def _crops(learner: "Masil", folder: Path, concepts: tuple[int, ...]) -> "tuple[tuple[Crop, ...], ...]":
    """Look at photos from all over the gallery for where the concepts are strongest."""
    from torch import zeros

    from masil.data import file_images
    from masil.errors import DataError
    from masil.learner import nearest_crops

    files = [str(file) for file in listed_files([str(folder)])]
    if not files:
        raise DataError(f"There is no photo in the gallery {folder}.")
    chosen = files[:: -(-len(files) // MOST)]
    assert learner.encoder_.backbone is not None
    return nearest_crops(
        learner.base_, learner.encoder_.backbone, file_images(Path(), chosen, zeros(len(chosen))), concepts
    )


def _others(explanation: "Explanation") -> float:
    return float(explanation.contributions.sum()) - sum(
        float(explanation.contributions[j]) for j in explanation.concepts
    )


def _sure(answers: "Answers") -> str:
    """Say how sure the answer is."""
    sure = f"confidence {percent(float(answers.probabilities[0].max()))}"
    if answers.known is None:
        return sure
    doubt = ", so perhaps unknown" if bool(answers.rejected()[0]) else ""
    return f"{sure}, known {percent(float(answers.known[0]))}{doubt}"
