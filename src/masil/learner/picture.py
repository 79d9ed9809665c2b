"""An explanation as a picture: the photo, where each concept lies, what it adds, and what it looks like elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from masil.errors import InputError
from masil.learner.explain import Crop, Explanation

TILE, GAP, SMALL = 240, 20, 72  # pixels: a photo, the space between two, a crop
PAPER, INK, FAINT, LINE = (255, 255, 255), (28, 30, 36), (110, 114, 124), (226, 228, 232)
FOR = (214, 92, 32)

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def draw_explanation(explanation: Explanation, *, crops: Sequence[Sequence[Crop]] | None = None) -> Image.Image:
    """Draw an explanation of an image, with how sure the learner is and, if given, crops of each concept."""
    if explanation.heat is None or explanation.pixels is None:
        raise InputError("This explanation has no heat maps: it is of activations and not of an image.")
    if crops is not None and len(crops) != len(explanation.concepts):
        raise InputError(f"There are crops of {len(crops)} concepts, but {len(explanation.concepts)} are explained.")
    columns = max(2, 1 + len(explanation.concepts))
    head, caption, foot = 92, 54, 44
    strip = 0 if crops is None else SMALL + GAP
    size = (GAP + columns * (TILE + GAP), head + TILE + caption + strip + foot)
    page = Image.new("RGB", size, PAPER)
    pen = ImageDraw.Draw(page)
    width = size[0] - 2 * GAP
    rival = "the only class known" if explanation.runner_up is None else f"rather than {explanation.runner_up}"
    _write(pen, (GAP, 16), f"{explanation.label}", width, size=30)
    _write(pen, (GAP, 56), f"{rival}   ·   {explanation.answer.certainty}", width, size=16, colour=FAINT)
    photo = _picture(explanation.pixels, TILE)
    _paste(page, pen, photo, (GAP, head))
    _write(pen, (GAP, head + TILE + 8), "the photo, as the model sees it", TILE, colour=FAINT)
    if crops is not None:
        _write(pen, (GAP, head + TILE + caption), "the same concepts, strongest", TILE, colour=FAINT)
        _write(pen, (GAP, head + TILE + caption + 20), "in photos of the gallery", TILE, colour=FAINT)
    largest = max((abs(float(explanation.contributions[j])) for j in explanation.concepts), default=1.0)
    for position, concept in enumerate(explanation.concepts):
        x = GAP + (position + 1) * (TILE + GAP)
        page.paste(overlay(photo, explanation.heat[position]), (x, head))
        added = float(explanation.contributions[concept])
        _write(pen, (x, head + TILE + 8), f"concept {concept}", TILE // 2)
        _write(pen, (x + TILE, head + TILE + 8), f"{added:+.3f}", TILE // 2, colour=FOR, anchor="ra")
        reach = max(1, round(TILE * abs(added) / largest))
        pen.rectangle((x, head + TILE + 30, x + TILE - 1, head + TILE + 35), LINE)  # both ends belong to a rectangle
        pen.rectangle((x, head + TILE + 30, x + reach - 1, head + TILE + 35), FOR)
        for number, crop in enumerate(() if crops is None else crops[position]):
            left = x + number * (SMALL + (TILE - 3 * SMALL) // 2)
            _paste(page, pen, _picture(crop.pixels, SMALL), (left, head + TILE + caption))
    _write(pen, (GAP, size[1] - foot + 12), lead_in_words(explanation), width, colour=FAINT)
    return page


def lead_in_words(explanation: Explanation) -> str:
    """Say in a line what makes up the lead: concepts for and against, what none explains, the balance of classes."""
    shares = explanation.contributions
    ahead, behind = float(shares.clamp_min(0).sum()), float(shares.clamp_max(0).sum())
    return (
        f"lead {explanation.difference:+.3f}  =  concepts for it {ahead:+.3f}   concepts against it {behind:+.3f}   "
        f"what no concept explains {explanation.rest:+.3f}   balance {explanation.offset:+.3f}"
    )


def overlay(photo: Image.Image, heat: Tensor) -> Image.Image:
    """Lay a heat map [h w] over a photo: pale grey where there is none, the photo in a warm light where it is."""
    warm = heat.clamp_min(0)
    share = (warm / warm.max().clamp_min(1e-12)).numpy()
    mask = Image.fromarray(np.rint(255 * share).astype(np.uint8)).resize(photo.size, Image.Resampling.BILINEAR)
    weight = np.asarray(mask, np.float32)[..., None] / 255
    pixels = np.asarray(photo, np.float32)
    grey = 0.35 * pixels.mean(2, keepdims=True) + 0.65 * 235
    lit = 0.72 * pixels + 0.28 * np.asarray(FOR, np.float32)
    return Image.fromarray(np.rint(grey + weight * (lit - grey)).clip(0, 255).astype(np.uint8))


def _picture(pixels: Tensor, side: int) -> Image.Image:
    """Give uint8 [3 h w] as a square of that side."""
    picture = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    return picture.resize((side, side), Image.Resampling.LANCZOS)


def _paste(page: Image.Image, pen: ImageDraw.ImageDraw, picture: Image.Image, corner: tuple[int, int]) -> None:
    """Put a picture on the page with a hairline around it: white paper on a white page would not be seen."""
    page.paste(picture, corner)
    left, top = corner
    pen.rectangle((left - 1, top - 1, left + picture.width, top + picture.height), outline=LINE)


def _write(
    pen: ImageDraw.ImageDraw, corner: tuple[int, int], text: str, width: int, *,
    size: int = 14, colour: tuple[int, ...] = INK, anchor: str = "la",
) -> None:  # fmt: skip
    """Write one line, cut short where it is wider than `width`."""
    font = _font(size)
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    if font.getlength(text) > width:
        while text and font.getlength(f"{text}…") > width:
            text = text[:-1]
        text = f"{text}…"
    pen.text(corner, text, colour, font, anchor=anchor if isinstance(font, ImageFont.FreeTypeFont) else None)


@cache
def _font(size: int) -> Font:
    """Take a font that knows many scripts where there is one, else Pillow's own."""
    for name in ("DejaVuSans.ttf", "Arial Unicode.ttf", "arial.ttf"):
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)
