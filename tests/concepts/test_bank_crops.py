import numpy as np
import pytest
import torch

from masil.concepts.bank_crops import random_crops
from masil.data import ArrayImages, Framing
from masil.errors import InputError

FRAMING = Framing(12, 12)


def images(n: int = 5) -> ArrayImages:
    pixels = np.random.default_rng(0).integers(0, 256, (n, 3, 12, 12), dtype=np.uint8)
    return ArrayImages(pixels, torch.arange(n) % 2)


def test_a_crop_shows_its_box_of_its_image() -> None:
    source = images()
    crops = random_crops(source, FRAMING, 3, 12, seed=0)  # of full size, so that nothing is resized
    assert torch.equal(crops.load(slice(None), FRAMING), torch.from_numpy(source.pixels).repeat_interleave(3, 0))
    small = random_crops(source, FRAMING, 3, 5, seed=0)
    loaded = small.load([7, 2, 7], FRAMING)
    assert loaded.shape == (3, 3, 12, 12)
    assert loaded.dtype == torch.uint8
    top, left, bottom, right = small.boxes[7].tolist()
    assert (bottom - top, right - left) == (5, 5)
    square = torch.from_numpy(source.pixels)[2:3, :, top:bottom, left:right]
    enlarged = torch.nn.functional.interpolate(square, size=(12, 12), mode="bilinear", antialias=True)
    assert torch.equal(loaded[:1], enlarged)
    assert torch.equal(loaded[0], loaded[2])


def test_places_are_uniform_and_come_from_the_seed() -> None:
    crops = random_crops(images(200), FRAMING, 10, 9, seed=1)
    counts = torch.stack([crops.boxes[:, 0].bincount(), crops.boxes[:, 1].bincount()]).double()
    assert counts.shape == (2, 4)
    assert float((counts / 2000 - 1 / 4).abs().max()) < 0.04
    assert torch.equal(crops.boxes, random_crops(images(200), FRAMING, 10, 9, seed=1).boxes)
    assert not torch.equal(crops.boxes, random_crops(images(200), FRAMING, 10, 9, seed=2).boxes)


def test_labels_names_and_subsets_follow_the_images() -> None:
    crops = random_crops(images(), FRAMING, 2, 4, seed=0)
    assert len(crops) == 10
    assert crops.labels.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0]
    part = crops.subset([9, 0])
    assert torch.equal(part.load(slice(None), FRAMING), crops.load([9, 0], FRAMING))
    top, left, bottom, right = crops.boxes[9].tolist()
    assert part.name(0) == f"array[4] [{top}:{bottom}, {left}:{right}]"
    assert crops.relabel(torch.arange(10)).labels.tolist() == list(range(10))
    assert crops.load(slice(0, 0), FRAMING).shape == (0, 3, 12, 12)


def test_the_fingerprint_knows_pixels_and_places() -> None:
    def fingerprint(n: int = 5, side: int = 4, seed: int = 0) -> str:
        return random_crops(images(n), FRAMING, 2, side, seed).fingerprint()

    assert fingerprint() == fingerprint()
    assert len({fingerprint(), fingerprint(n=4), fingerprint(side=5), fingerprint(seed=1)}) == 4


def test_bad_input_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="0 crops of each image were asked for"):
        random_crops(images(), FRAMING, 0, 4, seed=0)
    with pytest.raises(InputError, match="Crops of 13 px do not fit into images framed to 12 px"):
        random_crops(images(), FRAMING, 1, 13, seed=0)
    with pytest.raises(InputError, match=r"drawn in images of Framing\(resize=12, crop=12\), and cannot be loaded in"):
        random_crops(images(), FRAMING, 1, 4, seed=0).load([0], Framing(16, 12))
