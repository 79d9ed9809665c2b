"""What people hand over as images, or as activations, in the one form the learner works with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from masil.data import Images
from masil.data import read_images as read_images
from masil.errors import InputError


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
