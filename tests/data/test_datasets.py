from pathlib import Path

import pytest
from PIL import Image

from masil.data import DATASETS, data_root, load, locate
from masil.errors import DataError, UnknownNameError
from masil.files import cache_folder


def pets(folder: Path) -> Path:
    for i, name in enumerate(["cat", "dog"]):
        (folder / name).mkdir(parents=True)
        for j in range(3):
            Image.new("RGB", (4, 4), (80 * i, 80 * j, 0)).save(folder / name / f"{j}.png")
    return folder


def test_the_names_are_those_the_protocols_use() -> None:
    assert set(DATASETS) == {"characters", "cifar100", "cub200", "miniimagenet", "omniglot"}


@pytest.mark.parametrize("call", [load, locate])
def test_an_unknown_name_is_answered_with_the_nearest(call: object) -> None:
    with pytest.raises(UnknownNameError, match="There is no data set called 'CIFAR-100'; did you mean 'cifar100'?"):
        call("CIFAR-100")


def test_a_path_is_a_folder_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pets(tmp_path / "cifar100")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (folder, str(folder), "./cifar100", "~/cifar100"):
        assert load(path).classes == ("cat", "dog")
    pets(tmp_path / "pets")
    assert load("pets").name == "pets"
    with pytest.raises(DataError, match="There is no folder missing/pets"):
        load("missing/pets")


def test_a_name_wins_over_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pets(tmp_path / "cifar100")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="CIFAR-100 is not in"):
        load("cifar100", tmp_path / "none")


def test_the_folder_of_data_sets_is_the_argument_else_the_variable_else_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MASIL_DATA", raising=False)
    assert data_root() == cache_folder("data")
    monkeypatch.setenv("MASIL_DATA", str(tmp_path / "variable"))
    assert data_root() == tmp_path / "variable"
    assert data_root(tmp_path) == data_root(str(tmp_path)) == tmp_path
    (tmp_path / "variable" / "cifar-100-python").mkdir(parents=True)
    assert locate("cifar100") is None
    (tmp_path / "variable" / "cifar-100-python.tar.gz").touch()
    assert locate("cifar100") == tmp_path / "variable" / "cifar-100-python.tar.gz"
    assert locate("cifar100", tmp_path) is None


def test_nothing_is_fetched_unless_it_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr("masil.data.cifar100.download", lambda url, target, md5: fetched.append(url))
    with pytest.raises(DataError, match="CIFAR-100 is not in"):
        load("cifar100", tmp_path)
    assert fetched == []
    with pytest.raises(DataError, match="CIFAR-100 is not in"):
        load("cifar100", tmp_path, download=True)
    assert fetched == ["https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"]
