"""Hostile uploads: each is a sentence, none is decoded further than it must be, and no name of a client's is a path."""

import io
import struct
import zlib

import pytest
import torch
from PIL import Image

from masil.data import Framing
from masil.errors import DataError, InputError
from masil.studio.request_guard import Limits, RefusedError
from masil.studio.uploads import decode_uploads, upload_name, without_copies

SQUARE = Framing(32, 32)


def png_that_claims(width, height, rows=1):
    """A PNG whose header claims any size, over a few rows of nothing."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress((b"\0" + b"\0" * (3 * width)) * rows)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


HOSTILE = {
    "text": (b"hello, I am a photo", "is not an image of a kind that can be read"),
    "empty": (b"", "is empty (0 bytes)"),
    "html": (b"<!doctype html><script>alert(1)</script>", "is a web page (HTML)"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "is an SVG drawing"),
    "pdf": (b"%PDF-1.7 ...", "is a PDF document"),
    "huge": (png_that_claims(20_000, 20_000), "claims more than 89,478,485 pixels"),
    "wide": (png_that_claims(2_000_000, 100), "claims more than 89,478,485 pixels"),
    "elf": (b"\x7fELF" + bytes(200), "is not an image of a kind that can be read"),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("route", ["predict", "learn", "explain"])
def test_what_is_not_a_photo_is_a_sentence_that_names_it(client, files, kind, route, model_file):
    before = model_file.read_bytes()
    content, sentence = HOSTILE[kind]
    field = "image" if route == "explain" else "images"
    sent = [] if route == "explain" else files(1)
    answer = client.post(
        f"/api/{route}", files=[*sent, (field, ("x.jpg", content, "image/jpeg"))], data={"name": "new"}
    )
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(f"Image {len(sent) + 1} (x.jpg) ")
    assert sentence in answer.json()["error"]
    assert model_file.read_bytes() == before


def test_a_photo_cut_short_is_a_sentence(client, photo):
    for form in ("PNG", "JPEG"):
        whole = photo(1, side=128, form=form)
        answer = client.post("/api/predict", files=[("images", ("x", whole[: len(whole) // 2], "image/png"))])
        assert answer.status_code == 422
        assert "is damaged or cut short" in answer.json()["error"]


def test_a_bomb_within_the_limit_of_pixels_costs_little(client):
    bomb = png_that_claims(5000, 5000, rows=5000)  # 75 MB of pixels in some 75 kB
    assert len(bomb) < 100_000
    assert client.post("/api/predict", files=[("images", ("x.png", bomb, "image/png"))]).status_code == 200


def test_one_pixel_is_a_photo(client):
    file = io.BytesIO()
    Image.new("RGB", (1, 1), "red").save(file, "PNG")
    assert client.post("/api/predict", files=[("images", ("x.png", file.getvalue(), "image/png"))]).status_code == 200
    assert client.post("/api/explain", files=[("image", ("x.png", file.getvalue(), "image/png"))]).status_code == 200


@pytest.mark.parametrize("kind", ["text/html", "application/octet-stream", "image/svg+xml", "nonsense"])
def test_a_photo_is_known_by_its_content_alone(client, photo, kind):
    answer = client.post("/api/predict", files=[("images", ("x.html", photo(2, 100), kind))])
    assert answer.json()["predictions"][0]["label"] == "k2"


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "..\\..\\windows\\x.png", "/etc/passwd", "C:\\x.png", "con.png", "a\x00b.png", "x" * 1000],
)
def test_no_name_of_a_clients_is_a_path(client, photo, name, model_file):
    answer = client.post("/api/learn", files=[("images", (name, photo(7, 1), "image/png"))], data={"name": "new"})
    assert answer.status_code == 200, answer.text
    assert sorted(each.name for each in model_file.parent.iterdir()) == ["kinds.masil"]
    told = client.post("/api/predict", files=[("images", (name, photo(7, 1), "image/png"))]).json()
    assert "/" not in told["predictions"][0]["image"]
    assert "\\" not in told["predictions"][0]["image"]
    assert len(told["predictions"][0]["image"]) < 80


def test_names_in_messages_are_harmless():
    names = {
        "": "Image 1",
        "a/b/c.png": "Image 1 (c.png)",
        "\u202ecod.exe\n": "Image 1 (cod.exe)",
        "..": "Image 1 (..)",
    }
    assert [upload_name(0, name) for name in names] == list(names.values())


def test_no_photo_is_kept(client, files, model_file, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    client.post("/api/predict", files=files(1, 3))
    client.post("/api/learn", files=files(7, 3), data={"name": "new"})
    assert list(temporary.iterdir()) == []
    assert files(7)[0][1][1][-200:-100] not in model_file.read_bytes()


def test_too_many_and_too_large_are_refused(studio, files, photo):
    client = studio(limits=Limits(images=3, image_bytes=5000, seconds=20))
    many = client.post("/api/predict", files=files(1, 4))
    assert many.status_code == 413
    assert many.json()["error"] == "There are 4 images in the request; at most 3 are taken."
    large = client.post("/api/predict", files=[("images", ("x.png", photo(1, side=256), "image/png"))])
    assert large.status_code == 413
    assert large.json()["error"].startswith("Image 1 (x.png) has 0.2 MB; at most 0.005 MB")


def test_decoding_does_not_go_on_for_ever(photo, monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr("masil.studio.uploads.time.monotonic", lambda: float(next(ticks)))
    with pytest.raises(RefusedError, match="took longer than 2 s after 2 of 5 images"):
        decode_uploads([("x", photo(1))] * 5, SQUARE, Limits(seconds=2))


def test_photos_are_images(photo):
    photos = decode_uploads([("a", photo(1)), ("b", photo(2)), ("c", photo(1))], SQUARE, Limits())
    assert photos.load([1], SQUARE).shape == (1, 3, 32, 32)
    assert [photos.subset([2, 0]).name(place) for place in range(2)] == ["Image 3 (c)", "Image 1 (a)"]
    assert photos.relabel(torch.tensor([5, 6, 7])).subset([1]).labels.tolist() == [6]
    assert photos.subset([0]).fingerprint() == photos.subset([2]).fingerprint() != photos.fingerprint()
    assert [without_copies(photos).name(place) for place in range(2)] == ["Image 1 (a)", "Image 2 (b)"]
    with pytest.raises(InputError, match="were framed as"):
        photos.load([0], Framing(64, 64))
    with pytest.raises(RefusedError, match="There is no image in the request"):
        decode_uploads([], SQUARE, Limits())
    with pytest.raises(DataError, match="Image 1 is empty"):
        decode_uploads([("", b"")], SQUARE, Limits())
