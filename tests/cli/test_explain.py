import json

import pytest
from PIL import Image

from masil.errors import DataError, InputError, StorageError


@pytest.fixture
def photo(photos, tmp_path):
    return photos(tmp_path / "ask", {"bird c": 2}, 1, seed=5) / "bird c" / "5-0.png"


def test_a_picture_is_drawn_and_not_overwritten(masil, taught, photo, tmp_path):
    out = tmp_path / "why.png"
    done = masil("explain", taught, photo, "-o", out, "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "bird c, rather than bird" in done.stdout
    with Image.open(out) as picture:
        assert picture.format == "PNG"
        plain = picture.size
    with pytest.raises(StorageError, match="why.png exists already"):
        masil("explain", taught, photo, "-o", out)
    gallery = photo.parents[1]
    assert masil("explain", taught, photo, "-o", out, "--force", "--gallery", gallery).exit_code == 0
    with Image.open(out) as picture:
        assert picture.height > plain[1]


def test_data_add_up(masil, photos, taught, known, tmp_path):
    ask = photos(tmp_path / "all", known, 1, seed=6)
    explained = 0
    for photo in sorted(ask.glob("*/*.png"))[:4]:
        found = json.loads(masil("explain", taught, photo, "--json", "--count", 2, "--gallery", ask).stdout)
        named = sum(each["contribution"] for each in found["concepts"])
        beyond = found["rest"] + found["offset"]
        assert found["lead"] >= 0
        assert named + found["other_concepts"] + beyond == pytest.approx(found["lead"], abs=1e-5)
        assert sum(found["contributions"]) + beyond == pytest.approx(found["lead"], abs=1e-4)
        for each in found["concepts"]:
            explained += 1
            assert each["contribution"] > 0
            assert 0 <= max(map(max, each["heat"])) <= 1
            assert all(crop["image"].startswith(str(ask)) for crop in each["crops"])
    assert explained


def test_what_is_missing_is_said(masil, taught, photo, tmp_path):
    with pytest.raises(InputError, match="Name the picture to draw with -o why.png, or ask for data with --json"):
        masil("explain", taught, photo)
    with pytest.raises(DataError, match="There is no file .*none.png"):
        masil("explain", taught, tmp_path / "none.png", "--json")
    (tmp_path / "empty").mkdir()
    for name in ("why.jpg", "why.txt", "why"):
        with pytest.raises(InputError, match=f"{name} would hold a PNG picture; give it a name that ends in .png"):
            masil("explain", taught, photo, "-o", tmp_path / name)
    with pytest.raises(InputError, match="There is no photo in .*empty"):
        masil("explain", taught, photo, "--json", "--gallery", tmp_path / "empty")
