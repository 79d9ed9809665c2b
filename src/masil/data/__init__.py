"""Labelled images: where they come from, how they are decoded, augmented and cropped."""

from masil.data.augment import Augmentation, augment
from masil.data.crops import crops
from masil.data.datasets import DATASETS, Source, data_root, load, locate
from masil.data.decode import decode_image, frame_image, read_square
from masil.data.files import FileImages, on_this_thread
from masil.data.folder import read_folder
from masil.data.images import ArrayImages, Dataset, Framing, Images
from masil.data.mixing import Mixed, cutmix, mixup
from masil.data.shots import has_standard_shots
from masil.data.tree import natural

__all__ = [
    "DATASETS",
    "ArrayImages",
    "Augmentation",
    "Dataset",
    "FileImages",
    "Framing",
    "Images",
    "Mixed",
    "Source",
    "augment",
    "crops",
    "cutmix",
    "data_root",
    "decode_image",
    "frame_image",
    "has_standard_shots",
    "load",
    "locate",
    "mixup",
    "natural",
    "on_this_thread",
    "read_folder",
    "read_square",
]
