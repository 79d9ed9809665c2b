"""`masil export`: the whole model as one ONNX graph, checked before it is called done."""

from pathlib import Path
from typing import Annotated

import typer

from masil.cli.photos import listed_files, load_model, plural, print_json, refuse_overwriting, say

CHECKED = 16  # photos of --check, at most


def export(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    onnx: Annotated[Path, typer.Option("--onnx", help="The ONNX file to write.")],
    check: Annotated[
        list[str] | None,
        typer.Option(help="Photos, or a folder of some, on which the graph is checked.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write backbone, g and class vectors as one graph: pixels in, probabilities out, no masil needed to run it.

    Class names and how to make pixels of a photo are in the graph's metadata. ONNX Runtime must compute the same as
    PyTorch, on noise and on the photos of --check, before the file is written.
    """
    from masil.data import file_images
    from masil.files import write_bytes
    from masil.learner import export_onnx

    refuse_overwriting(onnx, force)
    learner = load_model(model, "cpu")
    backbone = learner.encoder_.backbone
    assert backbone is not None
    files = list(listed_files(check or []))[:CHECKED]
    pixels = None
    if files:
        from torch import zeros

        images = file_images(Path(), [str(file) for file in files], zeros(len(files)))
        pixels = images.load(slice(None), backbone.framing)
    content = export_onnx(learner, pixels)
    write_bytes(onnx, content)
    written = {
        "onnx": str(onnx), "bytes": len(content), "classes": len(learner.memory_.labels), "checked_photos": len(files)
    }  # fmt: skip
    if json:
        print_json(written)
        return
    on = f"{plural(len(files), 'photo')} and noise" if files else "noise"
    say(
        f"{onnx} has {plural(len(learner.memory_.labels), 'class')} and {len(content) / 1e6:.1f} MB; ONNX Runtime "
        f"computes the same as PyTorch with it, on {on}."
    )
