"""Images: where they come from, how they are decoded, augmented and cropped."""

from masil.data.augment import Augmentation, augment
from masil.data.crops import CropSource, crops, random_crops
from masil.data.datasets import DATASETS, DatasetSource, data_root, load, locate
from masil.data.datasets import DatasetSource as Source  # its old name
from masil.data.decode import decode_image, frame_image, read_square
from masil.data.images import Dataset, Faults, Framing, Images, ImageSource
from masil.data.listed import has_standard_shots
from masil.data.mixing import Mixed, cutmix, mixup
from masil.data.photos import Photos, natural, read_folder, read_photos
from masil.data.pictures import PictureSource, UploadSource, read_images
from masil.data.sources import ArraySource, FileSource, array_images, file_images, on_this_thread
from masil.data.sources import array_images as ArrayImages  # noqa: N812  its old name
from masil.data.sources import file_images as FileImages  # noqa: N812  its old name
