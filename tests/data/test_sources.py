"""What is particular to images in files, in what people hand over, and to crops."""

import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from masil.data import Framing, array_images, crops, file_images, on_this_thread, random_crops, read_images
from masil.data.sources import content_digest, in_threads
from masil.errors import DataError, InputError


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


# Files


@pytest.fixture
def paths(tmp_path):
    """Three files of 16 × 16 px; their pixels are noise(3, 16, 16, 3)."""
    for number, picture in enumerate(noise(3, 16, 16, 3)):
        Image.fromarray(picture).save(tmp_path / f"{number}.png")
    return [tmp_path / f"{number}.png" for number in range(3)]


def test_the_fingerprint_is_of_contents_and_follows_changes(paths, monkeypatch):
    folder, names = paths[0].parent, [path.name for path in paths]
    files = file_images(folder, names)
    before = files.fingerprint()
    paths[2].rename(folder / "other.png")
    renamed = file_images(folder, [*names[:2], "other.png"])
    assert renamed.fingerprint() == before
    Image.new("RGB", (12, 12)).save(folder / "other.png")
    assert renamed.fingerprint() != before
    with pytest.raises(DataError, match=r"2\.png cannot be read \(No such file or directory\)"):
        files.fingerprint()
    # An unchanged file is hashed once.
    digest = content_digest(str(paths[0]))
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("read again"))
    assert content_digest(str(paths[0])) == digest


def test_threads_keep_the_order_and_stop_after_the_first_error():
    assert list(in_threads(lambda i: i * i, range(1000))) == [i * i for i in range(1000)]
    done: list[int] = []

    def fail_at_three(i):
        if i == 3:
            raise DataError("three")
        done.append(i)

    with pytest.raises(DataError, match="three"):
        list(in_threads(fail_at_three, range(100_000)))
    assert len(done) < 100_000
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decode")]


def test_a_thread_that_works_beside_others_starts_none_of_its_own():
    with on_this_thread():
        assert set(in_threads(lambda _: threading.current_thread(), range(100))) == {threading.current_thread()}
    assert threading.current_thread() not in set(in_threads(lambda _: threading.current_thread(), range(100)))


# What people hand over

SQUARE = Framing(16, 16)


def test_every_form_gives_the_same_pixels(paths):
    pixels = noise(3, 16, 16, 3)
    expected = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
    forms = [
        pixels, torch.from_numpy(pixels), expected, expected.numpy(), list(pixels),
        [Image.fromarray(picture) for picture in pixels], paths, [str(path) for path in paths],
        np.array([str(path) for path in paths]), [path.read_bytes() for path in paths],
        [str(paths[0]), Image.fromarray(pixels[1]), torch.from_numpy(pixels[2])], array_images(expected.numpy()),
    ]  # fmt: skip
    for form in forms:
        assert torch.equal(read_images(form).load(slice(None), SQUARE), expected), type(form)
    mixed = read_images([paths[0], pixels[1], paths[2].read_bytes()])
    assert [mixed.name(position) for position in range(3)] == [str(paths[0]), "picture 1", "picture 2"]


def test_other_sizes_and_modes_are_framed():
    pixels = noise(3, 16, 16, 3)
    wide = Image.fromarray(pixels[0]).resize((40, 20))
    modes = [wide.convert(mode) for mode in ("RGB", "L", "RGBA", "P", "1", "CMYK", "LA")]
    for picture in (*modes, Image.fromarray(pixels[0, :, :, 0].astype(np.uint16))):
        assert read_images([picture]).load([0], SQUARE).shape == (1, 3, 16, 16)
    grey = read_images(pixels[:, :, :, 0]).load(slice(None), SQUARE)
    assert torch.equal(grey[:, 0], grey[:, 2])


def test_pictures_that_share_a_file_may_be_read_by_many_threads(paths, tmp_path):
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for path in paths:
            archive.add(path, path.name)
    with tarfile.open(tmp_path / "all.tar") as archive, ThreadPoolExecutor(8) as pool:
        lazy = [Image.open(archive.extractfile(f"{number % 3}.png")) for number in range(60)]
        pictures = read_images([*lazy, *lazy])
        parts = list(pool.map(lambda position: pictures.load([position], SQUARE), range(len(pictures))))
    expected = torch.from_numpy(noise(3, 16, 16, 3).transpose(0, 3, 1, 2).copy())
    assert all(torch.equal(part[0], expected[position % 3]) for position, part in enumerate(parts))


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


# Crops


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@settings(deadline=None)
@given(k=st.integers(1, 5), side=st.integers(1, 20), size=st.integers(1, 30), seed=st.integers(0, 99))
def test_crops_are_slices_resized_by_pillow_image_by_image(k, side, size, seed):
    x = torch.rand(3, 1, 20, 24, generator=seeded(1))
    result = crops(x, k, side, size, seeded(seed))
    share = torch.rand(3 * k, 2, generator=seeded(seed), dtype=torch.float64)
    corners = (share * torch.tensor([21 - side, 25 - side])).long().tolist()
    assert result.shape == (3 * k, 1, size, size)
    for row, (top, left) in enumerate(corners):
        square = Image.fromarray(x[row // k, 0, top : top + side, left : left + side].numpy())
        expected = torch.tensor(np.asarray(square.resize((size, size), Image.Resampling.BILINEAR)))
        torch.testing.assert_close(result[row, 0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("side", [7, 12])
def test_crops_of_images_are_those_of_their_pixels(side):
    pixels, framing = noise(6, 3, 12, 12), Framing(12, 12)
    images = random_crops(array_images(pixels, torch.arange(6)), framing, 4, side, seed=3)
    generator = seeded(3)  # pixels that come in parts give the same crops
    parts = [crops(torch.from_numpy(part), 4, side, 12, generator) for part in (pixels[:2], pixels[2:])]
    assert torch.equal(images.load(slice(None), framing), torch.cat(parts))
    assert images.labels.tolist() == [i for i in range(6) for _ in range(4)]
    floats = crops(torch.from_numpy(pixels).float(), 4, side, 12, seeded(3))
    assert torch.equal(torch.cat(parts), floats.round().to(torch.uint8))
    assert not random_crops(array_images(pixels), framing, 2, side, seed=0).labelled


def test_the_corners_of_crops_are_any_place_that_fits_and_come_from_the_seed():
    images, framing = array_images(noise(400, 3, 12, 12)), Framing(12, 12)
    source = random_crops(images, framing, 20, 9, seed=1).source
    counts = torch.bincount(source.boxes[:, 0] * 4 + source.boxes[:, 1], minlength=16)
    assert len(counts) == 16
    assert (counts / counts.sum() - 1 / 16).abs().max() < 0.015
    assert (source.boxes[:, 2:] - source.boxes[:, :2] == 9).all()
    assert torch.equal(source.boxes, random_crops(images, framing, 20, 9, seed=1).source.boxes)
    assert not torch.equal(source.boxes, random_crops(images, framing, 20, 9, seed=2).source.boxes)


def test_crops_that_cannot_be_cut_are_refused():
    x, images = torch.rand(3, 3, 20, 24), array_images(noise(4, 3, 6, 5), torch.arange(4))
    for pixels, (k, side, size), sentence in (
        (x, (10, 64, 64), "Crops of 64 px do not fit into images of 20 × 24 px"),
        (x, (0, 8, 8), "0 crops of each image were asked for"),
        (x, (1, 8, 0), "resized to 0 px"),
        (x[0], (1, 8, 8), r"shape \[n c h w\]"),
    ):
        with pytest.raises(InputError, match=sentence):
            crops(pixels, k, side, size, seeded())
    too_large = "Crops of 13 px do not fit into images of 12 × 12 px"
    for k, side, sentence in ((0, 4, "0 crops of each image were asked for"), (1, 13, too_large)):
        with pytest.raises(InputError, match=sentence):
            random_crops(images, Framing(12, 12), k, side, seed=0)
