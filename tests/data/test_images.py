"""What holds of images of every source: one suite for all, then what is particular to each."""

import io
import pickle
import tarfile
import threading
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
    crops,
    file_images,
    on_this_thread,
    random_crops,
    read_images,
)
from masil.data.sources import content_digest, in_threads
from masil.errors import DataError, InputError

PIXELS = (np.arange(4 * 3 * 6 * 5) * 7 % 256).astype(np.uint8).reshape(4, 3, 6, 5)
LABELS = torch.tensor([0, 1, 2, 1])
FRAMING = Framing(6, 5)


def arrays(_folder: Path) -> Images:
    return array_images(PIXELS, LABELS)


def in_files(folder: Path) -> Images:
    for number, pixels in enumerate(PIXELS):
        (folder / f"{number}.ppm").write_bytes(b"P6 5 6 255\n" + pixels.transpose(1, 2, 0).tobytes())
    return file_images(folder, [f"{number}.ppm" for number in range(4)], LABELS)


def in_memory(_folder: Path) -> Images:
    pictures = [Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in PIXELS]
    pictures[1:3] = pictures[1].convert("L"), pictures[2].resize((3, 4), Image.Resampling.NEAREST)
    return read_images(pictures).relabel(LABELS)


def uploads(_folder: Path) -> Images:
    return Images(UploadSource(torch.from_numpy(PIXELS[:, :, :5].copy()), list("abcd"), FRAMING), labels=LABELS)


def cropped(folder: Path) -> Images:
    boxes = torch.tensor([[0, 0, 3, 3], [1, 2, 4, 5], [2, 1, 5, 4], [0, 2, 3, 5]])
    return Images(CropSource(in_files(folder), FRAMING, torch.tensor([0, 0, 3, 2]), boxes), labels=LABELS)


def joined(folder: Path) -> Images:
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
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def images(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Images:
    return SOURCES[kind][0](tmp_path_factory.mktemp(kind))


def loaded(images: Images) -> torch.Tensor:
    return images.load(slice(None), FRAMING)


def names(images: Images) -> list[str]:
    return [images.name(position) for position in range(len(images))]


def test_checksums_and_names_are_those_of_ever(kind: str, images: Images) -> None:
    _, whole, part, first_names = SOURCES[kind]
    assert images.fingerprint() == whole
    assert images.subset([2, 0]).fingerprint() == part or kind == "joined"
    assert names(images)[:3] == first_names


def test_joined_images_are_hashed_in_runs_that_lie_in_one_part(tmp_path: Path) -> None:
    expected = "2c428c505e4706f18664fb270b36d0fff70e49c8cdfccc9c8a30a5aa1a0728cb"
    assert joined(tmp_path).subset([3, 0, 1, 4]).fingerprint() == expected


def test_images_load_one_by_one_or_together_in_the_order_asked_for(images: Images) -> None:
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


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3), max_size=6), st.data())
def test_a_subset_of_a_subset_is_the_subset_of_the_composition(
    images: Images, first: list[int], data: st.DataObject
) -> None:
    second = data.draw(st.lists(st.integers(0, len(first) - 1), max_size=6)) if first else []
    once, twice = images.subset([first[position] for position in second]), images.subset(first).subset(second)
    assert torch.equal(once.labels, twice.labels)
    assert torch.equal(loaded(once), loaded(twice))
    assert once.fingerprint() == twice.fingerprint()
    assert names(once) == names(twice)
    assert once.source is images.source


def test_labels_may_be_others_or_none_and_the_checksum_does_not_know_them(images: Images) -> None:
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


def test_joined_to_others_they_are_the_same(images: Images) -> None:
    more = Images.concat([images.subset([1]), array_images(PIXELS, LABELS), images])
    assert torch.equal(more.load([0, 7, 5, 4], FRAMING)[[0, 1, 2]], images.load([1, 2, 0], FRAMING))
    assert more.labels.tolist() == [images.labels[1], *LABELS, *images.labels]
    assert names(more)[5:] == names(images)
    assert more.subset([6, 5]).fingerprint() == Images.concat([images.subset([1, 0])]).fingerprint()
    assert not Images.concat([images, images.relabel(None)]).labelled
    assert len(Images.concat([])) == len(Images.concat([]).labels) == 0


def test_copies_are_known_by_their_content(images: Images) -> None:
    assert images.subset([1, 0, 1, 1]).originals() == [0, 1, 0, 0]
    assert images.subset([]).originals() == []


def test_what_is_not_there_is_named(images: Images) -> None:
    for wrong in (len(images), -1):
        sentence = f"Image {wrong} was asked for, but there are {len(images)}, counted from 0"
        for ask in (images.subset, lambda index: images.load(index, FRAMING)):
            with pytest.raises(InputError, match=sentence):
                ask([0, wrong])
    with pytest.raises(InputError, match=f"A mask of 2 was given for {len(images)} images"):
        images.subset(torch.tensor([True, False]))


def test_loading_never_hands_out_what_is_stored(images: Images) -> None:
    before = loaded(images)
    loaded(images).zero_()
    assert torch.equal(loaded(images), before)


def test_images_can_be_sent_to_another_process_and_loaded_by_many_threads(images: Images) -> None:
    again, expected = pickle.loads(pickle.dumps(images)), loaded(images)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(pixels, expected) for pixels in pool.map(loaded, [again] * 12))


def test_nothing_is_decoded_before_it_is_loaded(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in (ArraySource, CropSource, FileSource, PictureSource, UploadSource):
        monkeypatch.setattr(source, "load", lambda *_: pytest.fail("decoded"))
    assert len(Images.concat([images.subset([1, 0]).relabel(LABELS[:2]), images])) == len(images) + 2


# Files that cannot be read


@pytest.fixture
def damaged(tmp_path: Path) -> dict[str, Images]:
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
def test_bad_ones_are_said_beside_the_others_or_the_first_is_raised(damaged: dict[str, Images], kind: str) -> None:
    images = damaged[kind]
    pixels, faults = images.load_checked([3, 2, 1, 0, 1], FRAMING)
    assert sorted(faults) == [0, 2, 4]
    assert "is empty" in str(faults[0])
    assert "is damaged or cut short" in str(faults[2])
    assert torch.equal(pixels[[1, 3]], images.load([2, 0], FRAMING))
    assert not pixels[[0, 2, 4]].any()
    with pytest.raises(DataError, match="is damaged or cut short"):
        loaded(images)


def test_one_bad_file_does_not_make_the_others_be_read_twice(
    damaged: dict[str, Images], monkeypatch: pytest.MonkeyPatch
) -> None:
    from masil.data import read_square

    read: list[str] = []

    def counted(path: Path, framing: Framing) -> np.ndarray:
        read.append(path.name)
        return read_square(path, framing)

    monkeypatch.setattr("masil.data.sources.read_square", counted)
    for kind in ("files", "joined", "crops"):
        read.clear()
        assert sorted(damaged[kind].load_checked(slice(None), FRAMING)[1]) == [1, 3]
        assert sorted(read) == ["0.ppm", "1.ppm", "2.ppm", "3.ppm"]


# Framings and arrays


@pytest.mark.parametrize(("resize", "crop"), [(8, 9), (4, 0), (0, 0), (5, -1)])
def test_a_framing_cuts_out_of_what_it_resizes(resize: int, crop: int) -> None:
    with pytest.raises(InputError, match=rf"A framing cuts {crop} px out of {resize} px"):
        Framing(resize, crop)


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 64), st.integers(0, 32))
def test_a_resized_picture_keeps_its_shape_and_holds_the_crop(h: int, w: int, crop: int, margin: int) -> None:
    framing = Framing(crop + margin, crop)
    height, width = framing.resized(h, w)
    assert min(height, width) == framing.resize
    assert height == pytest.approx(framing.resize * h / min(h, w), abs=0.5)
    assert width == pytest.approx(framing.resize * w / min(h, w), abs=0.5)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(("h", "w"), [(8, 8), (40, 60), (60, 40), (33, 91)])
def test_arrays_and_files_are_resized_and_cut_as_pillow_does_it(h: int, w: int, tmp_path: Path) -> None:
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


def test_wrong_pixels_and_labels_are_refused() -> None:
    with pytest.raises(InputError, match=r"Images must be uint8 \[n 3 h w\], but are float32 of shape \(2, 3, 4, 4\)"):
        array_images(np.zeros((2, 3, 4, 4), np.float32))
    toy = array_images(PIXELS, LABELS)
    with pytest.raises(InputError, match="The test labels of 'toy' run from 0 to 2, but it has 2 classes"):
        Dataset("toy", ("a", "b"), toy.subset(LABELS < 2), toy)


def test_framed_already_means_framed_for_good(tmp_path: Path) -> None:
    for images, sentence in ((uploads(tmp_path), "were framed as"), (cropped(tmp_path), "crops were drawn in images")):
        with pytest.raises(InputError, match=sentence):
            images.load([0], Framing(7, 5))


# Files


def test_the_fingerprint_is_of_contents_and_follows_changes(tmp_path: Path) -> None:
    files = in_files(tmp_path)
    before = files.fingerprint()
    (tmp_path / "3.ppm").rename(tmp_path / "other.ppm")
    renamed = file_images(tmp_path, ["0.ppm", "1.ppm", "2.ppm", "other.ppm"])
    assert renamed.fingerprint() == before
    Image.new("RGB", (12, 12)).save(tmp_path / "other.ppm")
    assert renamed.fingerprint() != before
    with pytest.raises(DataError, match=r"3\.ppm cannot be read \(No such file or directory\)"):
        files.fingerprint()


def test_an_unchanged_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_files(tmp_path)
    digest = content_digest(str(tmp_path / "0.ppm"))
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("read again"))
    assert content_digest(str(tmp_path / "0.ppm")) == digest


def test_threads_keep_the_order_and_stop_after_the_first_error() -> None:
    assert list(in_threads(lambda i: i * i, range(1000))) == [i * i for i in range(1000)]
    done: list[int] = []

    def fail_at_three(i: int) -> None:
        if i == 3:
            raise DataError("three")
        done.append(i)

    with pytest.raises(DataError, match="three"):
        list(in_threads(fail_at_three, range(100_000)))
    assert len(done) < 100_000
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decode")]


def test_a_thread_that_works_beside_others_starts_none_of_its_own() -> None:
    with on_this_thread():
        assert set(in_threads(lambda _: threading.current_thread(), range(100))) == {threading.current_thread()}
    assert threading.current_thread() not in set(in_threads(lambda _: threading.current_thread(), range(100)))


# What people hand over

SQUARE = Framing(16, 16)


def test_every_form_gives_the_same_pixels(tmp_path: Path) -> None:
    pixels = noise(3, 16, 16, 3)
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, picture in zip(paths, pixels, strict=True):
        Image.fromarray(picture).save(path)
    expected = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
    forms = [
        pixels, torch.from_numpy(pixels), expected, expected.numpy(), list(pixels),
        [Image.fromarray(picture) for picture in pixels], paths, [str(path) for path in paths],
        np.array([str(path) for path in paths]), [path.read_bytes() for path in paths],
        [str(paths[0]), Image.fromarray(pixels[1]), torch.from_numpy(pixels[2])], array_images(expected.numpy()),
    ]  # fmt: skip
    for form in forms:
        assert torch.equal(read_images(form).load(slice(None), SQUARE), expected), type(form)
    assert names(read_images([paths[0], pixels[1], paths[2].read_bytes()])) == [str(paths[0]), "picture 1", "picture 2"]


def test_other_sizes_and_modes_are_framed() -> None:
    pixels = noise(3, 16, 16, 3)
    wide = Image.fromarray(pixels[0]).resize((40, 20))
    modes = [wide.convert(mode) for mode in ("RGB", "L", "RGBA", "P", "1", "CMYK", "LA")]
    for picture in (*modes, Image.fromarray(pixels[0, :, :, 0].astype(np.uint16))):
        assert read_images([picture]).load([0], SQUARE).shape == (1, 3, 16, 16)
    grey = read_images(pixels[:, :, :, 0]).load(slice(None), SQUARE)
    assert torch.equal(grey[:, 0], grey[:, 2])


def test_pictures_that_share_a_file_may_be_read_by_many_threads(tmp_path: Path) -> None:
    pixels = noise(3, 16, 16, 3)
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for number in range(3):
            Image.fromarray(pixels[number]).save(tmp_path / f"{number}.png")
            archive.add(tmp_path / f"{number}.png", f"{number}.png")
    with tarfile.open(tmp_path / "all.tar") as archive, ThreadPoolExecutor(8) as pool:
        lazy = [Image.open(archive.extractfile(f"{number % 3}.png")) for number in range(60)]
        pictures = read_images([*lazy, *lazy])
        parts = list(pool.map(lambda position: pictures.load([position], SQUARE), range(len(pictures))))
    expected = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
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
def test_what_is_no_image(images: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_images(images)


# Crops


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(deadline=None)
@given(k=st.integers(1, 5), side=st.integers(1, 20), size=st.integers(1, 30), seed=st.integers(0, 99))
def test_crops_are_slices_resized_by_pillow_image_by_image(k: int, side: int, size: int, seed: int) -> None:
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
def test_crops_of_images_are_those_of_their_pixels(side: int) -> None:
    pixels, framing = noise(6, 3, 12, 12), Framing(12, 12)
    images = random_crops(array_images(pixels, torch.arange(6)), framing, 4, side, seed=3)
    generator = seeded(3)  # pixels that come in parts give the same crops
    parts = [crops(torch.from_numpy(part), 4, side, 12, generator) for part in (pixels[:2], pixels[2:])]
    assert torch.equal(images.load(slice(None), framing), torch.cat(parts))
    assert images.labels.tolist() == [i for i in range(6) for _ in range(4)]
    floats = crops(torch.from_numpy(pixels).float(), 4, side, 12, seeded(3))
    assert torch.equal(torch.cat(parts), floats.round().to(torch.uint8))
    assert not random_crops(array_images(pixels), framing, 2, side, seed=0).labelled


def test_the_corners_of_crops_are_any_place_that_fits_and_come_from_the_seed() -> None:
    images, framing = array_images(noise(400, 3, 12, 12)), Framing(12, 12)
    source = CropSource.random(images, framing, 20, 9, seed=1)
    counts = torch.bincount(source.boxes[:, 0] * 4 + source.boxes[:, 1], minlength=16)
    assert len(counts) == 16
    assert (counts / counts.sum() - 1 / 16).abs().max() < 0.015
    assert (source.boxes[:, 2:] - source.boxes[:, :2] == 9).all()
    assert torch.equal(source.boxes, CropSource.random(images, framing, 20, 9, seed=1).boxes)
    assert not torch.equal(source.boxes, CropSource.random(images, framing, 20, 9, seed=2).boxes)


def test_crops_that_cannot_be_cut_are_refused() -> None:
    x, images, framing = torch.rand(3, 3, 20, 24), array_images(PIXELS), Framing(12, 12)
    with pytest.raises(InputError, match="Crops of 64 px do not fit into images of 20 × 24 px"):
        crops(x, 10, 64, 64, seeded())
    with pytest.raises(InputError, match="asked for 0 crops"):
        crops(x, 0, 8, 8, seeded())
    with pytest.raises(InputError, match="resized to 0 px"):
        crops(x, 1, 8, 0, seeded())
    with pytest.raises(InputError, match=r"shape \[n c h w\]"):
        crops(x[0], 1, 8, 8, seeded())
    with pytest.raises(InputError, match="0 crops of each image were asked for"):
        random_crops(images, framing, 0, 4, seed=0)
    with pytest.raises(InputError, match="Crops of 13 px do not fit into images framed to 12 px"):
        random_crops(images, framing, 1, 13, seed=0)
