"""Every way to hand over an image leads to the same pixels; what cannot be one is refused in a sentence."""

import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from masil.data import ArrayImages, Framing
from masil.errors import InputError
from masil.learner.inputs import read_activations, read_images

SQUARE = Framing(16, 16)


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)


def loaded(images):
    return read_images(images).load(slice(None), SQUARE)


def test_every_form_gives_the_same_pixels(pixels, tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path, picture in zip(paths, pixels, strict=True):
        Image.fromarray(picture).save(path)
    expected = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
    forms = [
        pixels,
        torch.from_numpy(pixels),
        expected,
        expected.numpy(),
        list(pixels),
        [Image.fromarray(p) for p in pixels],
        paths,
        [str(path) for path in paths],
        np.array([str(path) for path in paths]),
        [paths[0], Image.fromarray(pixels[1]), pixels[2]],
        ArrayImages(expected.numpy(), torch.zeros(3)),
    ]
    for form in forms:
        assert torch.equal(loaded(form), expected), type(form)


def test_other_sizes_and_modes_are_framed(pixels):
    wide = Image.fromarray(pixels[0]).resize((40, 20))
    for mode in ("RGB", "L", "RGBA", "P", "1", "CMYK", "LA", "I;16"):
        picture = Image.fromarray(pixels[0, :, :, 0].astype(np.uint16)) if mode == "I;16" else wide.convert(mode)
        assert loaded([picture]).shape == (1, 3, 16, 16)
    grey = loaded(pixels[:, :, :, 0])
    assert torch.equal(grey[:, 0], grey[:, 2])


def test_pictures_that_share_a_file_may_be_read_by_many_threads(pixels, tmp_path):
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for at in range(3):
            Image.fromarray(pixels[at]).save(tmp_path / f"{at}.png")
            archive.add(tmp_path / f"{at}.png", f"{at}.png")
    with tarfile.open(tmp_path / "all.tar") as archive, ThreadPoolExecutor(8) as pool:
        lazy = [Image.open(archive.extractfile(f"{at % 3}.png")) for at in range(60)]
        found = read_images([*lazy, *lazy])
        parts = list(pool.map(lambda at: found.load([at], SQUARE), range(len(found))))
    expected = loaded(pixels)
    assert all(torch.equal(part[0], expected[at % 3]) for at, part in enumerate(parts))


def test_pictures_are_images_like_others(pixels):
    pictures = read_images([Image.fromarray(p) for p in pixels])
    assert torch.equal(pictures.subset([2, 0]).load([1], SQUARE), pictures.load([0], SQUARE))
    assert pictures.relabel(torch.tensor([4, 5, 6])).labels.tolist() == [4, 5, 6]
    assert pictures.fingerprint() == read_images([Image.fromarray(p) for p in pixels]).fingerprint()
    assert pictures.fingerprint() != pictures.subset([1, 0, 2]).fingerprint()
    assert pictures.name(1) == "picture 1"
    assert pictures.load([], SQUARE).shape == (0, 3, 16, 16)


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (np.full((2, 8, 8, 3), np.nan, np.float32), "Image 0 has pixels that are infinite or not a number"),
        (np.zeros((2, 8, 8, 3), np.float32), "must be uint8 from 0 to 255, but are float32; multiply"),
        (np.zeros((2, 8, 8, 4), np.uint8), r"but have the shape \[2, 8, 8, 4\]"),
        ("owl.png", "came as one str; give a list of file paths"),
        (Path("owl.png"), "came as one .*Path; give a list"),
        (7, "came as one int"),
        ([7], "Image 0 is a int"),
    ],
)
def test_what_is_no_image(images, sentence):
    with pytest.raises(InputError, match=sentence):
        read_images(images)


def test_activations_in_any_wrapping():
    rows = [[0.0, 1.5], [2.0, 0.0]]
    for form in (rows, np.array(rows), np.array(rows, np.float32), torch.tensor(rows), torch.tensor(rows).double()):
        found = read_activations(form, None)
        assert found.dtype == torch.float32
        assert found.tolist() == rows


@pytest.mark.parametrize(
    ("activations", "sentence"),
    [
        ([[1.0, 2.0], [1.0, -0.5]], "of image 1 go down to -0.5, but concepts need activations >= 0"),
        ([[1.0, 2.0], [1.0, float("nan")]], "of image 1 are infinite or not a number"),
        ([[1.0, 2.0, 3.0]], "have 3 features but the model has learnt from 2; were they computed with the same"),
        ([1.0, 2.0], r"must be activations \[n d\], but has the shape \[2\]"),
        (["owl.png"], r"must be activations \[n d\], but is a list; give Masil a backbone"),
        (object(), r"must be activations \[n d\], but is a object"),
    ],
)
def test_what_are_no_activations(activations, sentence):
    with pytest.raises(InputError, match=sentence):
        read_activations(activations, 2)
