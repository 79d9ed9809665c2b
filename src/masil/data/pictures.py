"""Images as people bring them (pictures, arrays, bytes, paths, uploads), in the one form that masil works with."""

import hashlib
import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from masil.data.decode import decode_image, frame_image
from masil.data.images import Faults, Framing, Images, Rows
from masil.data.sources import array_images, decode_rows, file_images
from masil.errors import DataError, InputError

FORMS = (
    "a list of file paths, of PIL images, of arrays or of the bytes of files, an array uint8 [n h w 3] or [n 3 h w], "
    "or masil.data.Images"
)

# Pictures still to be read may share a file, or be one and the same: only one thread reads at a time.
_READING = threading.Lock()


def read_images(images: Any) -> Images:
    """Give what was handed over as `Images` (without labels, unless it has some); no pixel is decoded or changed."""
    if isinstance(images, Images):
        return images
    if isinstance(images, Tensor):
        images = images.detach().cpu().numpy()
    if isinstance(images, np.ndarray) and images.dtype.kind not in "OUS":
        return array_images(_channels_first(images))
    if isinstance(images, str | bytes | Path | Image.Image) or not hasattr(images, "__iter__"):
        raise InputError(f"Images came as one {type(images).__name__}; give {FORMS}.")
    items = list(images)
    if all(isinstance(item, str | Path) for item in items):
        return file_images(Path(), [str(item) for item in items])
    return Images(PictureSource(items))


@final
class PictureSource:
    """Pictures in memory, each of its own size and mode: PIL images, arrays, or what is in a file (bytes or a path)."""

    def __init__(self, pictures: Sequence[Any]) -> None:
        self.pictures = [_picture(position, picture) for position, picture in enumerate(pictures)]

    def __len__(self) -> int:
        return len(self.pictures)

    def load(self, rows: Rows, framing: Framing) -> tuple[Tensor, Faults]:
        """Turn each into RGB and cut its square."""
        return decode_rows(lambda row: frame_image(_rgb(self._opened(row)), framing), rows, framing)

    def name(self, row: int) -> str:
        """Name the place, and the file where the picture remembers one."""
        picture = self.pictures[row]
        if isinstance(picture, Path):
            return str(picture)
        return str(getattr(picture, "filename", "") or f"picture {row}")

    def fingerprint(self, rows: Rows) -> str:
        """Hash sizes, modes and pixels."""
        state = hashlib.sha256()
        for picture in map(self._opened, rows.tolist()):
            state.update(f"{picture.mode} {picture.size} ".encode())
            state.update(picture.tobytes())
        return state.hexdigest()

    def _opened(self, row: int) -> Image.Image:
        picture = self.pictures[row]
        if isinstance(picture, bytes | Path):
            return decode_image(picture, name=self.name(row))
        try:
            with _READING:
                picture.load()
        except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises for most damaged files
            raise DataError(f"{self.name(row)} is damaged or cut short ({error}).") from error
        return picture


@final
class UploadSource:
    """Pictures that were framed when they came: a hundred-megapixel photo weighs as little here as a thumbnail."""

    def __init__(self, pixels: Tensor, names: Sequence[str], framing: Framing) -> None:
        self.pixels, self.names, self.framing = pixels, names, framing  # pixels uint8 [n 3 crop crop]

    def __len__(self) -> int:
        return len(self.pixels)

    def load(self, rows: Rows, framing: Framing) -> tuple[Tensor, Faults]:
        """Give the pixels, which must be wanted as they were framed."""
        if framing != self.framing:
            raise InputError(f"The images were framed as {self.framing} but are wanted as {framing}.")
        return self.pixels[torch.from_numpy(rows)], {}

    def name(self, row: int) -> str:
        """Give the name as messages use it."""
        return self.names[row]

    def fingerprint(self, rows: Rows) -> str:
        """Hash the pixels."""
        return hashlib.sha256(self.pixels.numpy()[rows].tobytes()).hexdigest()


def _picture(position: int, picture: Any) -> Image.Image | bytes | Path:
    """Give arrays as pictures, and refuse what can be none."""
    if isinstance(picture, Image.Image | bytes | Path):
        return picture
    if isinstance(picture, str):
        return Path(picture)
    if isinstance(picture, np.ndarray | Tensor):
        array = np.asarray(picture.detach().cpu() if isinstance(picture, Tensor) else picture)
        return Image.fromarray(_channels_first(array[None])[0].transpose(1, 2, 0))
    raise InputError(f"Image {position} is a {type(picture).__name__}; give {FORMS}.")


def _channels_first(pixels: np.ndarray) -> np.ndarray:
    """Give uint8 [n 3 h w] of pixels in any usual layout."""
    if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
        wrong = int(np.flatnonzero(~np.isfinite(pixels).reshape(len(pixels), -1).all(1))[0])
        raise InputError(f"Image {wrong} has pixels that are infinite or not a number.")
    if pixels.dtype != np.uint8:
        raise InputError(
            f"Pixels must be uint8 from 0 to 255, but are {pixels.dtype}; multiply pixels in [0, 1] by 255 and round. "
            "For ready activations, make the learner with backbone=None."
        )
    if pixels.ndim == 3:  # grey [n h w]
        return np.repeat(pixels[:, None], 3, 1)
    if pixels.ndim == 4 and 3 in (pixels.shape[1], pixels.shape[3]):
        return pixels.transpose(0, 3, 1, 2) if pixels.shape[3] == 3 else pixels
    raise InputError(f"Pixels must be [n h w 3], [n 3 h w] or grey [n h w], but have the shape {list(pixels.shape)}.")


def _rgb(picture: Image.Image) -> Image.Image:
    """Give RGB; what may be transparent or deeper than 8 bits goes the way a file would."""
    if picture.mode in ("RGB", "L", "CMYK", "YCbCr", "HSV", "LAB"):
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    buffer = io.BytesIO()
    with _READING:
        picture.save(buffer, "PNG")
    return decode_image(buffer.getvalue())
