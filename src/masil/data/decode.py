"""A file becomes an upright RGB picture, or a sentence that says why it cannot.

Files are known by their content, never by their ending. Readable are JPEG, PNG, WebP, GIF, BMP, TIFF and PPM, and AVIF
and JPEG 2000 where Pillow was built with them. Of an animation the first frame is taken, transparency is laid on white,
and a picture of more than `PIXEL_LIMIT` pixels is refused, because a small file can claim any size.
"""

import io
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, TypeVar

import numpy as np
import torch
from PIL import ExifTags, Image, UnidentifiedImageError, features

from masil.data.images import Framing, frame_pixels
from masil.errors import DataError

T = TypeVar("T")

# At 3 bytes a pixel 268 MB; Pillow warns from the same size on.
PIXEL_LIMIT = 89_478_485
HEAD = 30  # bytes that tell the size of a lossy WebP

Image.init()
_CODECS = {"JPEG": "jpg", "PNG": "zlib", "WEBP": "webp", "AVIF": "avif", "JPEG2000": "jpg_2000"}
FORMATS = tuple(
    kind
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
    if kind in Image.OPEN and (kind not in _CODECS or features.check(_CODECS[kind]))
)

_BOMB = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # EXIF's orientation → what undoes it
_IMPOSTORS = (
    (r"\s*(<\?xml[^>]*>\s*)?(<!doctype html|<html)", "is a web page (HTML); perhaps a download that failed"),
    (r"[^\0]*<svg", "is an SVG drawing, which has no pixels; export it as PNG"),
    (r"%pdf", "is a PDF document; export the picture as PNG or JPEG"),
    (r"version https://git-lfs", "is a Git LFS pointer, not the picture itself; run `git lfs pull`"),
    (r"....ftyp(hei|hev|mif1|msf1)", "is a HEIC photo; export it as JPEG"),
    (r"\xff\xd8\xff|\x89png|gif8|riff....webp", "begins like an image but is damaged or cut short"),
)  # how files begin that Pillow does not know, and what they are


def decode_image(source: Path | str | bytes, side: int | None = None, name: str | None = None) -> Image.Image:
    """Read a file (or its bytes) into an upright 8-bit RGB picture, or raise a sentence that names it.

    With `side`, a JPEG is decoded at the smallest of 1/1, 1/2, 1/4 and 1/8 of its size that leaves both sides at least
    twice as long as `side`: what is then resized to `side` looks the same, and a 12-megapixel photo is cheap.
    """
    return _read(source, lambda file, called: _upright(_open(file, side), called), name)


def read_square(source: Path | str | bytes, framing: Framing, name: str | None = None) -> np.ndarray:
    """Read a file (or its bytes) and frame it, uint8 [3 crop crop], in the fastest way there is for its kind.

    The pixels are those of `frame_image(decode_image(source, framing.resize), framing)`, to two levels.
    """

    def work(file: BinaryIO, called: str) -> np.ndarray:
        image, size = None, lossy_webp_size(file.read(HEAD))
        file.seek(0)
        if size is None:
            image = _open(file, framing.resize)
            size = image.size if _plain(image) else None
        short, long = sorted(size or (0, 0))
        # Neither enlarged, nor so long that `frame_image` is faster, nor a bomb.
        if size is not None and framing.resize <= short and long <= 2 * short and short * long <= PIXEL_LIMIT:
            file.seek(0)
            content = file.read(3 * size[0] * size[1])  # no photo is larger than its pixels
            rgb = decode_rgb("WEBP" if image is None else str(image.format), content, *size)
            if rgb is not None:  # torch takes less time to resize the whole than Pillow for the square
                return frame_pixels(torch.from_numpy(rgb).permute(2, 0, 1)[None], framing)[0].numpy()
            file.seek(0)
        return frame_image(_upright(image or _open(file, framing.resize), called), framing)

    return _read(source, work, name)


def frame_image(image: Image.Image, framing: Framing) -> np.ndarray:
    """Resize a picture (bilinear, antialiased) and cut its central square: uint8 [3 crop crop].

    Only the square is resized, so that a long thin picture costs no more than any other.
    """
    height, width = framing.resized(image.height, image.width)
    top, left = (height - framing.crop) // 2, (width - framing.crop) // 2
    y, x = image.height / height, image.width / width
    right, bottom = min((left + framing.crop) * x, image.width), min((top + framing.crop) * y, image.height)
    box = (left * x, top * y, right, bottom)
    square = image.resize((framing.crop, framing.crop), Image.Resampling.BILINEAR, box)
    return np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1))


def _read(source: Path | str | bytes, work: Callable[[BinaryIO, str], T], name: str | None) -> T:
    """Do the work on an open file; whatever goes wrong becomes a sentence that names it."""
    if isinstance(source, bytes):
        return _guarded(io.BytesIO(source), work, name or "The image")
    name = name or str(source)
    try:
        with Path(source).open("rb") as file:
            return _guarded(file, work, name)
    except OSError as error:
        sentences = {
            FileNotFoundError: f"There is no file {name}.",
            IsADirectoryError: f"{name} is a folder, not an image.",
            PermissionError: f"{name} cannot be read: no permission.",
        }
        raise DataError(sentences.get(type(error), f"{name} cannot be read ({error.strerror}).")) from error


def _guarded(file: BinaryIO, work: Callable[[BinaryIO, str], T], name: str) -> T:
    try:
        return work(file, name)
    except _BOMB as error:
        raise DataError(f"{name} claims more than {PIXEL_LIMIT:,} pixels; make it smaller to use it.") from error
    except UnidentifiedImageError as error:
        raise DataError(f"{name} {_impostor(file)}.") from error
    except DataError:
        raise
    except Exception as error:  # damaged files make Pillow raise nearly anything: OSError, ValueError, struct.error, …
        raise DataError(f"{name} is damaged or cut short ({error or type(error).__name__}).") from error


def _open(file: BinaryIO, side: int | None) -> Image.Image:
    image = Image.open(file, formats=FORMATS)
    if image.width * image.height > PIXEL_LIMIT:
        raise Image.DecompressionBombError
    if side is not None:
        image.draft(None, (2 * side, 2 * side))
    return image


def _upright(image: Image.Image, name: str) -> Image.Image:
    image.load()
    rgb = _rgb(image, name)
    turn = _orientation(image)
    return rgb if turn is None else rgb.transpose(turn)


def _plain(image: Image.Image) -> bool:
    """Tell whether a picture needs nothing but decoding."""
    scaled = getattr(image, "decoderconfig", ())[:1] not in ((), (1,))  # a JPEG, by Image.draft
    return image.mode == "RGB" and not scaled and image.format == "JPEG" and _orientation(image) is None


def _impostor(file: BinaryIO) -> str:
    """Say what a file that Pillow does not know seems to be."""
    file.seek(0)
    head = file.read(512).decode("latin-1")
    if not head:
        return "is empty (0 bytes)"
    for beginning, sentence in _IMPOSTORS:
        if re.match(beginning, head, re.IGNORECASE | re.DOTALL):
            return sentence
    return f"is not an image of a kind that can be read ({', '.join(FORMATS)})"


def _orientation(image: Image.Image) -> Image.Transpose | None:
    """Find what undoes the camera's rotation. EXIF that cannot be read says nothing about it."""
    try:
        return _UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # noqa: BLE001  as above
        return None


def _rgb(image: Image.Image, name: str) -> Image.Image:
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return _from_16_bit(image)
    if image.mode in ("I", "F"):
        raise DataError(f"{name} has 32-bit pixels, of which black and white are not known; save it with 8 or 16 bits.")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")  # which would copy it


def _from_16_bit(image: Image.Image) -> Image.Image:
    """Scale grey levels 0 … 2^b − 1 to 0 … 255; Pillow's own conversion would clip them at 255."""
    bits = 16
    if (tags := getattr(image, "tag_v2", None)) is not None:
        bits = tags.get(258, (16,))[0]  # TIFF's BitsPerSample: 12-bit microscopes and X-rays
    grey = np.asarray(image).astype(np.float32) * (255 / (2**bits - 1))
    if (clear := image.info.get("transparency")) is not None:
        grey[np.asarray(image) == clear] = 255
    return Image.fromarray(np.rint(grey).clip(0, 255).astype(np.uint8)).convert("RGB")


def lossy_webp_size(head: bytes) -> tuple[int, int] | None:
    """Give width and height of a WebP in the simple lossy format, which can hold one opaque, upright frame only."""
    if head[:4] != b"RIFF" or head[8:16] != b"WEBPVP8 " or head[23:26] != b"\x9d\x01\x2a" or len(head) < HEAD:
        return None
    width, height = (int.from_bytes(head[start : start + 2], "little") & 0x3FFF for start in (26, 28))
    return width, height


def decode_rgb(kind: str, content: bytes, width: int, height: int) -> np.ndarray | None:
    """Decode a JPEG or WebP of known size into uint8 [height width 3].

    None means that Pillow should try: there is no such decoder, or it does not like the file.
    """
    library = _library("simplejpeg" if kind == "JPEG" else "webp")
    if library is None:
        return None
    try:
        if kind == "JPEG":
            # A buffer of the size that was checked: a file that turns out larger is refused, not decoded.
            rgb: np.ndarray = library.decode_jpeg(content, buffer=np.empty((height, width, 3), np.uint8))
        else:
            rgb = library.WebPData.from_buffer(content).decode(library.WebPColorMode.RGB)
    except Exception:  # noqa: BLE001  whatever is wrong, Pillow finds it, too, and it becomes a sentence there
        return None
    return rgb if rgb.shape == (height, width, 3) else None


@cache
def _library(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None
