import io
import struct
import warnings
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features

from masil.data import Framing, decode, decode_image, frame_image, read_square
from masil.data.decode import FORMATS, PIXEL_LIMIT
from masil.errors import DataError


def photo(width=48, height=32, seed=0):
    """A smooth picture with four different corners, which compresses without great loss."""
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([255 * x / width, 255 * y / height, 128 + 90 * np.sin(x / 9 + seed)], axis=-1)
    return Image.fromarray(rgb.astype(np.uint8))


def grained(width, height):
    noise = np.random.default_rng(0).integers(-30, 31, (height, width, 3))
    return Image.fromarray((np.asarray(photo(width, height)).astype(int) + noise).clip(0, 255).astype(np.uint8))


def encode(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixels(image):
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


LOSSLESS = [
    ("PNG", {}), ("BMP", {}), ("TIFF", {}), ("PPM", {}), ("WEBP", {"lossless": True}), ("GIF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options"), LOSSLESS)
def test_lossless_files_come_back_as_they_were_whatever_their_ending(kind, options, tmp_path):
    image = photo() if kind != "GIF" else photo().quantize(64).convert("RGB")
    file = tmp_path / "picture.jpg"
    file.write_bytes(encode(image, kind, **options))
    assert np.array_equal(pixels(decode_image(file)), pixels(image))
    assert np.array_equal(pixels(decode_image(str(file))), pixels(image))
    assert np.array_equal(pixels(decode_image(file.read_bytes())), pixels(image))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "AVIF", "JPEG2000"])
def test_lossy_files_come_back_nearly_as_they_were(kind):
    codec = {"AVIF": "avif", "JPEG2000": "jpg_2000"}.get(kind)
    if codec and not features.check(codec):
        pytest.skip(f"this Pillow was built without {kind}")
    assert np.abs(pixels(decode_image(encode(photo(), kind, quality=95))) - pixels(photo())).mean() < 4


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_undone(kind, orientation):
    upright = photo()
    # What the sensor saw, by the definition of each EXIF value: where row 0 and column 0 of the stored picture lie.
    stored = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, -1),
    }[orientation](np.asarray(upright))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 98}, "WEBP": {"lossless": True}}.get(kind, {})
    content = encode(Image.fromarray(np.ascontiguousarray(stored)), kind, exif=exif, **options)
    found = decode_image(content)
    assert found.size == upright.size
    assert np.abs(pixels(found) - pixels(upright)).mean() < (3 if kind == "JPEG" else 0.01)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_a_broken_exif_block_does_not_cost_the_picture():
    for kind in ("JPEG", "WEBP"):
        for exif in (b"Exif\x00\x00MM\x00*\xff\xff\xff\xff\x00\x01", b"Exif\x00\x00MM\x00*", b"Exif\x00\x00garbage"):
            assert decode_image(encode(photo(), kind, exif=exif)).size == (48, 32)


def test_grey_and_black_and_white_become_equal_channels_and_a_palette_is_looked_up():
    grey = photo().convert("L")
    for image in (grey, grey.convert("1")):
        found = pixels(decode_image(encode(image, "PNG")))
        assert np.array_equal(found, np.repeat(np.asarray(image.convert("L"))[..., None], 3, axis=2))
    palette = photo().quantize(32)
    assert np.array_equal(pixels(decode_image(encode(palette, "PNG"))), pixels(palette.convert("RGB")))


@pytest.mark.parametrize(("mode", "kind"), [("RGBA", "PNG"), ("LA", "PNG"), ("RGBA", "WEBP"), ("RGBA", "TIFF")])
def test_alpha_is_laid_on_white(mode, kind):
    image = photo().convert(mode)
    alpha = np.tile(np.linspace(0, 255, 48).astype(np.uint8), (32, 1))
    image.putalpha(Image.fromarray(alpha))
    opaque = np.asarray(image.convert("RGBA")).astype(float)
    share = opaque[..., 3:] / 255
    expected = opaque[..., :3] * share + 255 * (1 - share)
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    assert np.abs(pixels(decode_image(encode(image, kind, **options))) - expected).max() <= 1


def test_transparent_colours_of_palette_grey_and_rgb_become_white():
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.putpixel((1, 0), 1)
    found = pixels(decode_image(encode(palette, "PNG", transparency=0)))
    assert found.tolist() == [[[255, 255, 255], [200, 100, 50]]]
    assert pixels(decode_image(encode(palette, "GIF", transparency=0)))[0, 0].tolist() == [255, 255, 255]
    grey = Image.fromarray(np.array([[7, 90]], np.uint8))
    assert pixels(decode_image(encode(grey, "PNG", transparency=7)))[0, :, 0].tolist() == [255, 90]
    rgb = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
    assert pixels(decode_image(encode(rgb, "PNG", transparency=(1, 2, 3)))).tolist() == [[[255] * 3, [4, 5, 6]]]
    deep = Image.fromarray(np.array([[1000, 30_000]], np.uint16))
    assert pixels(decode_image(encode(deep, "PNG", transparency=1000)))[0, :, 0].tolist() == [255, 117]


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk_keeps_its_colours(kind):
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    red = pixels(decode_image(encode(image, kind)))
    assert np.abs(red - [255, 0, 0]).max() <= 4


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits_are_scaled_and_not_clipped(kind):
    levels = np.linspace(0, 65535, 64).astype(np.uint16).reshape(4, 16)
    found = pixels(decode_image(encode(Image.fromarray(levels), kind)))
    assert np.array_equal(found[..., 0], np.rint(levels / 257.0).astype(int))
    assert np.array_equal(found[..., 0], found[..., 2])


def twelve_bit_tiff():
    """Two 12-bit pixels, 0xFFF and 0x800, packed in three bytes."""
    entries = [(256, 3, 1, 2), (257, 3, 1, 1), (258, 3, 1, 12), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8),
               (277, 3, 1, 1), (278, 3, 1, 1), (279, 4, 1, 3)]  # fmt: skip
    body = b"".join(struct.pack("<HHIHH" if kind == 3 else "<HHII", tag, kind, n, *((v, 0) if kind == 3 else (v,)))
                    for tag, kind, n, v in entries)  # fmt: skip
    data = b"\xff\xf8\x00\x00"
    head = b"II*\x00" + struct.pack("<I", 12)
    return head + data + struct.pack("<H", len(entries)) + body + struct.pack("<I", 0)


def test_deep_tiffs_fill_the_whole_range_and_those_without_known_black_and_white_are_refused():
    assert pixels(decode_image(twelve_bit_tiff()))[0, :, 0].tolist() == [255, 128]
    big_endian = Image.fromarray(np.array([[0, 257, 32896, 65535]], np.uint16).astype(">u2"))
    assert pixels(decode_image(encode(big_endian, "TIFF")))[0, :, 0].tolist() == [0, 1, 128, 255]
    for mode in ("I", "F"):
        content = encode(Image.new(mode, (4, 4), 70_000), "TIFF")
        with pytest.raises(DataError, match=r"x\.tif has 32-bit pixels, of which black and white are not known"):
            decode_image(content, name="x.tif")


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_an_animation_the_first_frame_is_taken(kind):
    first, second = Image.new("RGB", (9, 9), (0, 0, 0)), Image.new("RGB", (9, 9), (255, 255, 255))
    content = encode(first, kind, save_all=True, append_images=[second])
    assert pixels(decode_image(content)).max() <= 2


def test_several_pictures_in_one_jpeg_give_the_first():
    content = encode(photo(), "MPO", save_all=True, append_images=[Image.new("RGB", (48, 32))], quality=95)
    assert np.abs(pixels(decode_image(content, side=8)).mean() - pixels(photo()).mean()) < 4


READERS = [decode_image, lambda file: decode_image(file, 4), lambda file: read_square(file, Framing(8, 8))]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
@pytest.mark.parametrize("read", READERS)
def test_a_file_cut_short_is_refused_by_name(kind, read, tmp_path):
    content = encode(grained(64, 64), kind)
    file = tmp_path / "half.jpg"
    for length in (len(content) // 2, len(content) - 64):
        file.write_bytes(content[:length])
        with pytest.raises(DataError, match=rf"{file} .*(is damaged or cut short|begins like an image but is damaged)"):
            read(file)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"]), st.sampled_from(READERS), st.data())
def test_damage_gives_a_picture_or_a_sentence_and_nothing_else(kind, read, data):
    content = bytearray(encode(photo(24, 16), kind))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DataError):
        result = read(bytes(content))
        assert getattr(result, "mode", "") == "RGB" or result.shape == (3, 8, 8)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_sentence(content):
    with pytest.raises(DataError, match=r"^stray .*\.$"):
        decode_image(content, name="stray")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"hello, I am text", r"is not an image of a kind that can be read \(JPEG, PNG, WEBP, GIF, BMP, TIFF, PPM"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "is an SVG drawing, which has no pixels"),
        (b"\n<!DOCTYPE html><html><body>404</body></html>", r"is a web page \(HTML\); perhaps a download that failed"),
        (b"%PDF-1.7 ...", "is a PDF document"),
        (b"I prefer webp to gif89a and <html>", "is not an image of a kind that can be read"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n", "is a Git LFS pointer"),
        (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "is a HEIC photo; export it as JPEG"),
        (b"\xff\xd8\xff\xe0 nothing after it", r"is damaged or cut short \("),
        (b"\x89PNG\r\n\x1a\n and no picture", "begins like an image but is damaged or cut short"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "is not an image of a kind that can be read"),
    ],
)
def test_what_is_no_image_is_called_what_it_is(content, sentence, tmp_path):
    file = tmp_path / "photo.jpg"
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"^{file} {sentence}"):
        decode_image(file)


def test_a_file_that_is_missing_or_a_folder_is_named_and_formats_that_run_programs_are_not_read(tmp_path):
    assert not {"EPS", "WMF", "FPX"} & set(FORMATS)
    with pytest.raises(DataError, match=f"There is no file {tmp_path}/none.png"):
        decode_image(tmp_path / "none.png")
    with pytest.raises(DataError, match=f"{tmp_path} is a folder, not an image"):
        decode_image(tmp_path)


def png_that_claims(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("width", [PIXEL_LIMIT + 1, 4 * PIXEL_LIMIT])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(width):
    for filters in ("ignore", "error"):
        with warnings.catch_warnings():
            warnings.simplefilter(filters)
            with pytest.raises(DataError, match=r"bomb\.png claims more than 89,478,485 pixels"):
                decode_image(png_that_claims(width, 1), name="bomb.png")


def test_a_big_jpeg_is_decoded_small_and_looks_the_same():
    content, framing = encode(photo(1600, 1200), "JPEG", quality=95), Framing(64, 56)
    whole, small = decode_image(content), decode_image(content, side=64)
    assert whole.size == (1600, 1200)
    assert small.size == (200, 150)  # an eighth, still more than twice 64
    assert decode_image(content, side=76).size == (400, 300)
    difference = frame_image(whole, framing).astype(int) - frame_image(small, framing)
    assert np.abs(difference).mean() < 1


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 40), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_framing_is_resizing_the_shorter_side_and_cutting_the_centre(w, h, crop, margin):
    image, framing = photo(w, h), Framing(crop + margin, crop)
    height, width = framing.resized(h, w)
    top, left = (height - crop) // 2, (width - crop) // 2
    whole = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    found = frame_image(image, framing)
    assert found.shape == (3, crop, crop)
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - whole[:, top : top + crop, left : left + crop]).max() <= 1


def test_a_long_thin_picture_costs_no_more_than_its_square():
    """Resized whole, this one would take 256 × 15,360,000 pixels."""
    assert frame_image(Image.new("RGB", (60_000, 1), "red"), Framing(256, 224))[0].min() == 255


ROUNDING = 2  # levels, between Pillow's resizing of a part and torch's of the whole


@pytest.mark.parametrize(
    ("kind", "options"),
    [("JPEG", {"quality": quality, "subsampling": subsampling, "progressive": progressive})
     for quality, subsampling, progressive in ((30, 2, False), (75, 2, True), (90, 1, False), (95, 0, True))]
    + [("WEBP", {"quality": quality}) for quality in (20, 80, 100)]
    + [("WEBP", {"lossless": True})],
)  # fmt: skip
@pytest.mark.parametrize("size", [(97, 64), (64, 64), (65, 131)])
def test_fast_decoders_give_the_pixels_that_pillow_gives(kind, options, size):
    pytest.importorskip({"JPEG": "simplejpeg", "WEBP": "webp"}[kind])
    content = encode(grained(*size), kind, **options)
    rgb = decode.decode_rgb(kind, content, *size)
    assert rgb is not None
    assert decode.decode_rgb(kind, content, 30, 40) is None  # no more pixels than were announced
    # Two builds of a library may round colours differently; lossless they must agree.
    apart = np.abs(rgb.astype(int) - np.asarray(decode_image(content)).astype(int)).max()
    assert apart <= (0 if "lossless" in options else ROUNDING)
    for framing in (Framing(64, 56), Framing(40, 32)):
        expected = frame_image(decode_image(content, framing.resize), framing)
        assert np.abs(read_square(content, framing).astype(int) - expected).max() <= ROUNDING


def contents_for_pillow():
    """Pictures that need more than decoding."""
    turned = Image.Exif()
    turned[0x0112] = 6
    clear = grained(80, 64).convert("RGBA")
    clear.putalpha(90)
    return {
        "grey": encode(grained(80, 64).convert("L"), "JPEG"),
        "cmyk": encode(grained(80, 64).convert("CMYK"), "JPEG"),
        "turned": encode(grained(80, 64), "JPEG", exif=turned),
        "turned webp": encode(grained(80, 64), "WEBP", exif=turned),
        "large": encode(grained(800, 640), "JPEG"),
        "small": encode(grained(20, 30), "JPEG"),
        "several": encode(grained(80, 64), "MPO", save_all=True, append_images=[photo(80, 64)]),
        "moving": encode(grained(80, 64), "WEBP", save_all=True, append_images=[photo(80, 64)]),
        "transparent": encode(clear, "WEBP"),
        "long": encode(grained(180, 64), "JPEG"),
        "png": encode(grained(80, 64), "PNG"),
        "trailing": encode(grained(80, 64), "JPEG") + b"\0" * 100_000,
    }


@pytest.mark.parametrize("name", contents_for_pillow())
def test_a_square_is_the_framed_picture_whatever_the_file(name, tmp_path):
    content, framing = contents_for_pillow()[name], Framing(48, 40)
    expected = frame_image(decode_image(content, framing.resize), framing)
    file = tmp_path / "photo.jpg"
    file.write_bytes(content)
    for found in (read_square(content, framing), read_square(file, framing)):
        assert np.abs(found.astype(int) - expected).max() <= (ROUNDING if name == "trailing" else 0)


def test_without_fast_decoders_squares_are_the_same_to_rounding(monkeypatch):
    contents = [encode(grained(90, 70), kind) for kind in ("JPEG", "WEBP")]
    found = [read_square(content, Framing(48, 40)) for content in contents]
    monkeypatch.setattr(decode, "_library", lambda name: None)
    for content, square in zip(contents, found, strict=True):
        assert decode.decode_rgb("JPEG", content, 90, 70) is None
        assert np.abs(read_square(content, Framing(48, 40)).astype(int) - square).max() <= ROUNDING


def test_only_a_webp_that_is_one_opaque_upright_frame_tells_its_size():
    turned, clear = Image.Exif(), grained(80, 64).convert("RGBA")
    turned[0x0112] = 6
    clear.putalpha(90)
    assert decode.lossy_webp_size(encode(grained(80, 64), "WEBP")[: decode.HEAD]) == (80, 64)
    others = (
        encode(grained(80, 64), "WEBP", lossless=True),
        encode(grained(80, 64), "WEBP", exif=turned),
        encode(grained(80, 64), "WEBP", save_all=True, append_images=[photo(80, 64)]),
        encode(clear, "WEBP"),
        encode(grained(80, 64), "JPEG"),
        encode(grained(80, 64), "WEBP")[: decode.HEAD - 1],
        b"",
    )
    assert [decode.lossy_webp_size(content[: decode.HEAD]) for content in others] == [None] * len(others)


@pytest.mark.parametrize(("side", "sentence"), [(16_000, "claims more than|is damaged"), (9_000, "is damaged")])
def test_a_webp_that_claims_to_be_large_is_refused(side, sentence):
    content = bytearray(encode(grained(80, 64), "WEBP"))
    content[26:30] = struct.pack("<HH", side, side)
    with pytest.raises(DataError, match=rf"big\.webp .*({sentence})"):
        read_square(bytes(content), Framing(48, 40), "big.webp")
