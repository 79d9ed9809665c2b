"""What holds of images of every source, and how pictures are framed."""

import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from masil.data import (
    ArraySource,
    CropSource,
    Dataset,
    FileSource,
    Framing,
    Images,
    PictureSource,
    UploadSource,
    array_images,
    file_images,
    read_images,
)
from masil.errors import DataError, InputError

PIXELS = (np.arange(4 * 3 * 6 * 5) * 7 % 256).astype(np.uint8).reshape(4, 3, 6, 5)
LABELS = torch.tensor([0, 1, 2, 1])
FRAMING = Framing(6, 5)


def arrays(_folder):
    return array_images(PIXELS, LABELS)


def in_files(folder):
    for number, pixels in enumerate(PIXELS):
        (folder / f"{number}.ppm").write_bytes(b"P6 5 6 255\n" + pixels.transpose(1, 2, 0).tobytes())
    return file_images(folder, [f"{number}.ppm" for number in range(4)], LABELS)


def in_memory(_folder):
    pictures = [Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in PIXELS]
    pictures[1:3] = pictures[1].convert("L"), pictures[2].resize((3, 4), Image.Resampling.NEAREST)
    return read_images(pictures).relabel(LABELS)


def uploads(_folder):
    return Images(UploadSource(torch.from_numpy(PIXELS[:, :, :5].copy()), list("abcd"), FRAMING), labels=LABELS)


def cropped(folder):
    boxes = torch.tensor([[0, 0, 3, 3], [1, 2, 4, 5], [2, 1, 5, 4], [0, 2, 3, 5]])
    return Images(CropSource(in_files(folder), FRAMING, torch.tensor([0, 0, 3, 2]), boxes), labels=LABELS)


def joined(folder):
    array, files = arrays(folder), in_files(folder)
    return Images.concat([array.subset([3, 1]), files.subset([0, 2]), array.subset([3])])


# What makes them; the checksum of all; that of images 2 and 0; the names of the first three. Stored activations,
# checkpoints and results refer to these checksums: they may never change.
SOURCES: dict[str, tuple[Callable[[Path], Images], str, str, list[str]]] = {
    "arrays": (
        arrays, "2468bb138c8479c4ab335c70f831b03fea31597283c6be328a960a8a93e89fbf",
        "7b61732dd78903e0cc1fe10bf5cea932b27473ae2cb1f9c16c5a715f2ba6d479", ["array[0]", "array[1]", "array[2]"],
    ),
    "files": (
        in_files, "0ed384545e2ec3e795e1e5e1cfeffef711bb22404b6d8ff8daac51e1fd120856",
        "7eed11ae7749568f928e89ad8c375c15d237213c97ab4922915148b958866e92", ["0.ppm", "1.ppm", "2.ppm"],
    ),
    "pictures": (
        in_memory, "da3dee94895f0435bf240302f7471950a2fe23a178f37607b686bd73af3c2b2a",
        "3df0bdaa1ad2ce12c8f542bfac84faad92b952fa7dc21d3c4260d305477a9a21", ["picture 0", "picture 1", "picture 2"],
    ),
    "uploads": (
        uploads, "34c55dadddb9a6504e99899c806fd16bb5e648af96e5e25430e986bd72edcb67",
        "d3840be86840f9fabdbbb0773ac9f113152e0c9460d4f5b0fe38272b549a073a", ["a", "b", "c"],
    ),
    "crops": (
        cropped, "cb8d0b217401a0c80d43370d4e9b227ceadad20ad4be0804a4f2f8d10c9e5740",
        "a862ecfb9daa926eea0e3473927868c39fdd8a8f461a82b607d2bda39bca341b",
        ["0.ppm [0:3, 0:3]", "0.ppm [1:4, 2:5]", "3.ppm [2:5, 1:4]"],
    ),
    "joined": (
        joined, "9dd4e7c92fc1162330ac7d62c403133d426de177a04bcc0d6bb6c9e04990ef5c", "",
        ["array[3]", "array[1]", "0.ppm"],
    ),
}  # fmt: skip


@pytest.fixture(params=SOURCES, scope="module")
def kind(request):
    return str(request.param)


@pytest.fixture(scope="module")
def images(kind, tmp_path_factory):
    return SOURCES[kind][0](tmp_path_factory.mktemp(kind))


def loaded(images):
    return images.load(slice(None), FRAMING)


def names(images):
    return [images.name(position) for position in range(len(images))]


def test_checksums_and_names_are_those_of_ever(kind, images):
    _, whole, part, first_names = SOURCES[kind]
    assert images.fingerprint() == whole
    assert images.subset([2, 0]).fingerprint() == part or kind == "joined"
    assert names(images)[:3] == first_names
    if kind == "joined":  # hashed in runs that lie in one part
        expected = "2c428c505e4706f18664fb270b36d0fff70e49c8cdfccc9c8a30a5aa1a0728cb"
        assert images.subset([3, 0, 1, 4]).fingerprint() == expected
    assert images.subset([1, 0, 1, 1]).originals() == [0, 1, 0, 0]  # copies are known by their content
    assert images.subset([]).originals() == []


def test_images_load_one_by_one_or_together_in_the_order_asked_for(images):
    single = [images.load([position], FRAMING)[0] for position in range(len(images))]
    assert single[0].dtype == torch.uint8
    assert single[0].shape == (3, 5, 5)
    mask = images.labels == 1
    for index in (slice(None), slice(1, 3), [2, 0, 2], torch.tensor([3]), mask):
        chosen = torch.arange(len(images))[index].tolist()
        assert torch.equal(images.load(index, FRAMING), torch.stack([single[position] for position in chosen]))
        assert images.load_checked(index, FRAMING)[1] == {}
    assert images.load([], FRAMING).shape == (0, 3, 5, 5)
    assert len(images.subset([]).fingerprint()) == 64
    loaded(images).zero_()
    assert torch.equal(loaded(images), torch.stack(single))  # what is stored is never handed out


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3), max_size=6), st.data())
def test_a_subset_of_a_subset_is_the_subset_of_the_composition(images, first, data):
    second = data.draw(st.lists(st.integers(0, len(first) - 1), max_size=6)) if first else []
    once, twice = images.subset([first[position] for position in second]), images.subset(first).subset(second)
    assert torch.equal(once.labels, twice.labels)
    assert torch.equal(loaded(once), loaded(twice))
    assert once.fingerprint() == twice.fingerprint()
    assert names(once) == names(twice)
    assert once.source is images.source


def test_labels_may_be_others_or_none_and_the_checksum_does_not_know_them(images):
    other = images.relabel(images.labels + 5)
    assert other.labels.tolist() == [label + 5 for label in images.labels.tolist()]
    assert other.labels.dtype == torch.int64
    assert other.fingerprint() == images.fingerprint()
    assert images.fingerprint() != images.subset(list(range(len(images)))[::-1]).fingerprint()
    queries = images.relabel(None).subset([1, 0])
    assert (images.labelled, queries.labelled) == (True, False)
    assert torch.equal(loaded(queries), images.load([1, 0], FRAMING))
    with pytest.raises(InputError, match="These images have no labels; give them some with `relabel`"):
        _ = queries.labels
    with pytest.raises(InputError, match=f"There are {len(images)} images but 9 labels"):
        images.relabel(torch.zeros(9))


def test_joined_to_others_they_are_the_same(images):
    more = Images.concat([images.subset([1]), array_images(PIXELS, LABELS), images])
    assert torch.equal(more.load([0, 7, 5, 4], FRAMING)[[0, 1, 2]], images.load([1, 2, 0], FRAMING))
    assert more.labels.tolist() == [images.labels[1], *LABELS, *images.labels]
    assert names(more)[5:] == names(images)
    assert more.subset([6, 5]).fingerprint() == Images.concat([images.subset([1, 0])]).fingerprint()
    assert not Images.concat([images, images.relabel(None)]).labelled
    assert len(Images.concat([])) == len(Images.concat([]).labels) == 0


def test_what_is_not_there_is_named(images):
    for wrong in (len(images), -1):
        sentence = f"Image {wrong} was asked for, but there are {len(images)}, counted from 0"
        for ask in (images.subset, lambda index: images.load(index, FRAMING)):
            with pytest.raises(InputError, match=sentence):
                ask([0, wrong])
    with pytest.raises(InputError, match=f"A mask of 2 was given for {len(images)} images"):
        images.subset(torch.tensor([True, False]))


def test_images_can_be_sent_to_another_process_and_loaded_by_many_threads(images):
    again, expected = pickle.loads(pickle.dumps(images)), loaded(images)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(pixels, expected) for pixels in pool.map(loaded, [again] * 12))


def test_nothing_is_decoded_before_it_is_loaded(images, monkeypatch):
    for source in (ArraySource, CropSource, FileSource, PictureSource, UploadSource):
        monkeypatch.setattr(source, "load", lambda *_: pytest.fail("decoded"))
    assert len(Images.concat([images.subset([1, 0]).relabel(LABELS[:2]), images])) == len(images) + 2


# Files that cannot be read


@pytest.fixture
def damaged(tmp_path):
    """Images of which the second and the last cannot be read, by source."""
    files, contents = in_files(tmp_path), [(tmp_path / f"{number}.ppm").read_bytes() for number in range(4)]
    contents[1], contents[3] = contents[1][:60], b""
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.ppm").write_bytes(content)
    opened = [Image.open(io.BytesIO(content)) for content in contents[:2]]
    boxes = torch.tensor([[0, 0, 3, 3]] * 4)
    return {
        "files": files,
        "pictures": read_images([*opened, contents[2], tmp_path / "3.ppm"]),
        "crops": Images(CropSource(files, FRAMING, torch.arange(4), boxes)),
        "joined": Images.concat([files.subset([0]), files.subset([1, 2]), files.subset([3])]),
    }


@pytest.mark.parametrize("kind", ["files", "pictures", "crops", "joined"])
def test_bad_ones_are_said_beside_the_others_or_the_first_is_raised(damaged, kind):
    images = damaged[kind]
    pixels, faults = images.load_checked([3, 2, 1, 0, 1], FRAMING)
    assert sorted(faults) == [0, 2, 4]
    assert "is empty" in str(faults[0])
    assert "is damaged or cut short" in str(faults[2])
    assert torch.equal(pixels[[1, 3]], images.load([2, 0], FRAMING))
    assert not pixels[[0, 2, 4]].any()
    with pytest.raises(DataError, match="is damaged or cut short"):
        loaded(images)


def test_one_bad_file_does_not_make_the_others_be_read_twice(damaged, monkeypatch):
    from masil.data import read_square

    read: list[str] = []

    def counted(path, framing):
        read.append(path.name)
        return read_square(path, framing)

    monkeypatch.setattr("masil.data.sources.read_square", counted)
    for kind in ("files", "joined", "crops"):
        read.clear()
        assert sorted(damaged[kind].load_checked(slice(None), FRAMING)[1]) == [1, 3]
        assert sorted(read) == ["0.ppm", "1.ppm", "2.ppm", "3.ppm"]


# Framings and arrays


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 64), st.integers(0, 32))
def test_a_resized_picture_keeps_its_shape_and_holds_the_crop(h, w, crop, margin):
    framing = Framing(crop + margin, crop)
    height, width = framing.resized(h, w)
    assert min(height, width) == framing.resize
    assert height == pytest.approx(framing.resize * h / min(h, w), abs=0.5)
    assert width == pytest.approx(framing.resize * w / min(h, w), abs=0.5)


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(("h", "w"), [(8, 8), (40, 60), (60, 40), (33, 91)])
def test_arrays_and_files_are_resized_and_cut_as_pillow_does_it(h, w, tmp_path):
    pixels, framing = noise(2, 3, h, w), Framing(20, 16)
    height, width = framing.resized(h, w)
    top, left = (height - 16) // 2, (width - 16) // 2
    pictures = [Image.fromarray(image.transpose(1, 2, 0)) for image in pixels]
    expected = np.stack([np.asarray(each.resize((width, height), Image.Resampling.BILINEAR)) for each in pictures])
    squares = torch.from_numpy(expected).permute(0, 3, 1, 2)[:, :, top : top + 16, left : left + 16].int()
    assert (array_images(pixels).load(slice(None), framing).int() - squares).abs().max() <= 1
    for number, picture in enumerate(pictures):
        picture.save(tmp_path / f"{number}.png")
    files = file_images(tmp_path, ["0.png", "1.png"])
    assert (files.load(slice(None), framing).int() - squares).abs().max() <= 2  # two passes, each rounded to 8 bits


def test_wrong_framings_pixels_and_labels_are_refused():
    for resize, crop in ((8, 9), (4, 0), (0, 0), (5, -1)):
        with pytest.raises(InputError, match=rf"A framing cuts {crop} px out of {resize} px"):
            Framing(resize, crop)
    with pytest.raises(InputError, match=r"Images must be uint8 \[n 3 h w\], but are float32 of shape \(2, 3, 4, 4\)"):
        array_images(np.zeros((2, 3, 4, 4), np.float32))
    toy = array_images(PIXELS, LABELS)
    with pytest.raises(InputError, match="The test labels of 'toy' run from 0 to 2, but it has 2 classes"):
        Dataset("toy", ("a", "b"), toy.subset(LABELS < 2), toy)


def test_framed_already_means_framed_for_good(tmp_path):
    for images, sentence in ((uploads(tmp_path), "were framed as"), (cropped(tmp_path), "crops were drawn in images")):
        with pytest.raises(InputError, match=sentence):
            images.load([0], Framing(7, 5))
