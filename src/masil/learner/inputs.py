"""What people hand over as images, or as activations, in the one form the learner works with."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from masil.data import ArrayImages, FileImages, Framing, Images, decode_image, frame_image
from masil.errors import InputError

FORMS = "a list of file paths, of PIL images or of arrays, an array uint8 [n h w 3] or [n 3 h w], or masil.data.Images"

# Pictures still to be read may share a file, or be one and the same: only one thread reads at a time.
_READING = threading.Lock()


@final
class Pictures(Images):
    """Pictures in memory, each of its own size and mode, framed when they are asked for."""

    def __init__(self, pictures: Sequence[Image.Image], labels: Tensor) -> None:
        self.pictures = pictures
        self.labels = labels

    def load(self, index: Tensor | Sequence[int] | slice, framing: Framing) -> Tensor:
        """Turn each into upright RGB and cut its square."""
        framed = [frame_image(_read(self.pictures[row]), framing) for row in self._rows(index)]
        shape = (0, 3, framing.crop, framing.crop)
        return torch.from_numpy(np.stack(framed)) if framed else torch.empty(shape, dtype=torch.uint8)

    def subset(self, index: Tensor | Sequence[int] | slice) -> Self:
        """Give the same pictures, fewer of them."""
        rows = self._rows(index)
        return type(self)([self.pictures[row] for row in rows], self.labels[rows])

    def relabel(self, labels: Tensor) -> Self:
        """Give the same pictures with other labels."""
        return type(self)(self.pictures, labels)

    def fingerprint(self) -> str:
        """Hash sizes, modes and pixels."""
        state = hashlib.sha256()
        for picture in self.pictures:
            state.update(f"{picture.mode} {picture.size} ".encode())
            state.update(picture.tobytes())
        return state.hexdigest()

    def name(self, position: int) -> str:
        """Name the place, and the file where the picture remembers one."""
        return str(getattr(self.pictures[position], "filename", "") or f"picture {position}")

    def _rows(self, index: Tensor | Sequence[int] | slice) -> list[int]:
        rows: list[int] = torch.arange(len(self.labels))[index].tolist()
        return rows


def read_images(images: Any) -> Images:
    """Give what was handed over as `Images`; no pixel is decoded yet and nothing is changed."""
    if isinstance(images, Images):
        return images
    if isinstance(images, Tensor):
        images = images.detach().cpu().numpy()
    if isinstance(images, np.ndarray) and images.dtype.kind not in "OUS":
        pixels = _channels_first(images)
        return ArrayImages(pixels, torch.zeros(len(pixels), dtype=torch.int64))
    if isinstance(images, str | bytes | Path | Image.Image) or not hasattr(images, "__iter__"):
        raise InputError(f"Images came as one {type(images).__name__}; give {FORMS}.")
    each = list(images)
    none = torch.zeros(len(each), dtype=torch.int64)
    if all(isinstance(one, str | Path) for one in each):
        return FileImages(Path(), [str(one) for one in each], none)
    return Pictures([_picture(place, one) for place, one in enumerate(each)], none)


def read_activations(activations: Any, features: int | None) -> Tensor:
    """Give activations as float32 [n d], finite and >= 0, of the width that is known already."""
    try:
        found = torch.as_tensor(np.asarray(activations) if isinstance(activations, list | tuple) else activations)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"Without a backbone the input must be activations [n d], but is a {type(activations).__name__}; "
            "give Masil a backbone if these are images."
        ) from error
    if found.ndim != 2 or found.is_complex() or found.dtype == torch.bool:
        raise InputError(
            f"Without a backbone the input must be activations [n d], but has the shape {list(found.shape)} and type "
            f"{found.dtype}; give Masil a backbone if these are images."
        )
    found = found.detach().to("cpu", torch.float32)
    if features is not None and found.shape[1] != features:
        raise InputError(
            f"The activations have {found.shape[1]} features but the model has learnt from {features}; "
            "were they computed with the same backbone?"
        )
    if bool((wrong := ~found.isfinite().all(1)).any()):
        raise InputError(f"The activations of image {int(wrong.nonzero()[0])} are infinite or not a number.")
    if bool((wrong := (found < 0).any(1)).any()):
        raise InputError(
            f"The activations of image {int(wrong.nonzero()[0])} go down to {float(found.min()):.3g}, but concepts "
            "need activations >= 0; take them after a ReLU, or split them into [relu(a), relu(−a)]."
        )
    return found


def alone(image: Any, activations: bool) -> Any:
    """Put one image, or the activations of one, where many are expected."""
    dimensions = getattr(image, "ndim", None)
    if isinstance(image, Images) or dimensions == (2 if activations else 4):
        return image
    if dimensions is not None:
        return image[None]
    return image if isinstance(image, list | tuple) and not activations else [image]


def _channels_first(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
        at = int(np.flatnonzero(~np.isfinite(pixels).reshape(len(pixels), -1).all(1))[0])
        raise InputError(f"Image {at} has pixels that are infinite or not a number.")
    if pixels.dtype != np.uint8:
        raise InputError(
            f"Pixels must be uint8 from 0 to 255, but are {pixels.dtype}; multiply pixels in [0, 1] by 255 and round. "
            "For ready activations, make the learner with backbone=None."
        )
    if pixels.ndim == 3:  # grey [n h w]
        return np.repeat(pixels[:, None], 3, 1)
    if pixels.ndim == 4 and pixels.shape[3] == 3:
        return pixels.transpose(0, 3, 1, 2)
    if pixels.ndim == 4 and pixels.shape[1] == 3:
        return pixels
    raise InputError(f"Pixels must be [n h w 3], [n 3 h w] or grey [n h w], but have the shape {list(pixels.shape)}.")


def _picture(place: int, one: Any) -> Image.Image:
    if isinstance(one, Image.Image):
        return one
    if isinstance(one, str | Path):
        return decode_image(one)
    if isinstance(one, np.ndarray | Tensor):
        array = np.asarray(one.detach().cpu() if isinstance(one, Tensor) else one)
        return Image.fromarray(_channels_first(array[None])[0].transpose(1, 2, 0))
    raise InputError(f"Image {place} is a {type(one).__name__}; give {FORMS}.")


def _read(picture: Image.Image) -> Image.Image:
    with _READING:
        picture.load()
        return _rgb(picture)


def _rgb(picture: Image.Image) -> Image.Image:
    """Give RGB; what may be transparent or deeper than 8 bits goes the way a file would."""
    if picture.mode in ("RGB", "L", "CMYK", "YCbCr", "HSV", "LAB"):
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return decode_image(buffer.getvalue())
