"""Images: where they come from, how they are decoded, augmented and cropped."""

from masil.data.augment import Augmentation, Mixed, augment, cutmix, mixup
from masil.data.crops import CropSource, crops, random_crops
from masil.data.datasets import DATASETS, DatasetSource, data_root, load, locate
from masil.data.decode import decode_image, frame_image, read_square
from masil.data.images import Dataset, Faults, Framing, Images, ImageSource
from masil.data.listed import has_standard_shots
from masil.data.photos import Photos, natural, photo_classes, read_folder, read_photos
from masil.data.pictures import PictureSource, UploadSource, read_images
from masil.data.sources import ArraySource, FileSource, array_images, file_images, on_this_thread
