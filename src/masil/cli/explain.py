"""`masil explain`: why this class and not the next, as a picture and as data."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil.cli import options
from masil.cli.output import print_json, print_table, say
from masil.cli.photos import listed_files, load_model, refuse_overwriting
from masil.errors import InputError

if TYPE_CHECKING:
    from masil.learner import Crop, Explanation

GALLERY_PHOTOS = 128  # that are looked at, at most
GRID = 14  # places a side of a heat map in JSON


def explain(
    model: options.Model,
    image: Annotated[Path, typer.Argument(help="The photo to explain.")],
    out: Annotated[Path | None, options.option("--out", "-o", text="The picture to draw, as PNG.")] = None,
    gallery: Annotated[
        Path | None, options.option(text="A folder of photos in which to show what each concept looks like.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=8, help="Show this many concepts.")] = 3,
    force: options.Force = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Say which concepts spoke for the class of a photo and against the runner-up, and where each of them lies.

    A model keeps no photo, so what a concept looks like elsewhere can only be shown in photos you give: --gallery.
    """

    from masil.learner import draw_explanation
    from masil.storage import write_bytes

    if out is not None:
        if out.suffix.lower() != ".png":
            raise InputError(f"{out} would hold a PNG picture; give it a name that ends in .png.")
        refuse_overwriting(out, force)
    elif not json:
        raise InputError("Name the picture to draw with -o why.png, or ask for data with --json.")
    learner = load_model(model, device)
    explanation = learner.explain([image], count)
    crops = None
    if gallery is not None:
        files = listed_files([str(gallery)])
        crops = learner.nearest_crops(files[:: -(-len(files) // GALLERY_PHOTOS)], explanation.concepts)
    if out is not None:
        file = io.BytesIO()
        draw_explanation(explanation, crops=crops).save(file, "PNG")
        write_bytes(out, file.getvalue())
    if json:
        print_json({"image": str(image), **_as_data(explanation, crops)})
        return
    say(f"{explanation.label}, rather than {explanation.runner_up or 'nothing else'}: {explanation.answer.certainty}.")
    rows = [(f"concept {j}", float(explanation.contributions[j])) for j in explanation.concepts]
    rows += [("all other concepts", explanation.others), ("no concept", explanation.rest)]
    rows += [("balance of classes", explanation.offset), ("lead", explanation.difference)]
    print_table("", ("what", "adds to the lead"), [(what, f"{share:+.3f}") for what, share in rows])
    say(f"The picture is {out}.")


def _as_data(explanation: "Explanation", crops: "Sequence[Sequence[Crop]] | None") -> dict[str, Any]:
    """Give an explanation as plain values; a heat map is a grid of shares of its largest value."""
    from torch.nn.functional import adaptive_avg_pool2d

    assert explanation.heat is not None
    concepts: list[dict[str, Any]] = []
    for position, j in enumerate(explanation.concepts):
        warm = adaptive_avg_pool2d(explanation.heat[position].clamp_min(0)[None, None], GRID)[0, 0]
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
                {"image": crop.image, "box": list(crop.box), "coefficient": crop.coefficient}
                for crop in crops[position]
            ]
    answer = explanation.answer
    return {
        "label": explanation.label,
        "runner_up": explanation.runner_up,
        "unknown": bool(answer.unknown),
        "confidence": answer.top[0].probability,
        "known": answer.known,
        "lead": explanation.difference,
        "concepts": concepts,
        "other_concepts": explanation.others,
        "rest": explanation.rest,
        "offset": explanation.offset,
        "contributions": [round(value, 6) for value in explanation.contributions.tolist()],
    }
