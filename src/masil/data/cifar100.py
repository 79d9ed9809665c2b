"""CIFAR-100 from its official archive: 100 classes, 500 training and 100 test images each, 32 × 32.

The archive holds pickles, and a pickle can run any program. So their checksums are compared first, and then nothing but
what an array of numbers needs is unpickled. The pixels stay where the unpickler puts them: no second copy is made.
"""

import pickle
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, final

import numpy as np
import torch

from masil.data.images import Dataset, Images
from masil.data.listed import standard_shots
from masil.data.sources import array_images
from masil.errors import DataError, StorageError
from masil.progress import bar
from masil.storage import atomic_path, digest

_FILES = ("train", "test", "meta")
_FOLDER = "cifar-100-python"
_PACKED = "cifar-100-python.tar.gz"
_CHUNK = 1 << 18  # bytes
_SILENCE = 60  # seconds without a byte after which a connection counts as broken


@final
@dataclass(frozen=True)
class Archive:
    """What is published, and where. `meta` needs no checksum: it is unpickled without any class or function."""

    url: str
    md5: str
    train_md5: str
    test_md5: str
    megabytes: int = 169


OFFICIAL = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    train_md5="16019d7e3df5f24257cddd939b257f8d",
    test_md5="f0ef6b0ae62326f3e7ffdfab6717acfc",
)


def find_cifar100(root: Path) -> Path | None:
    """Give the unpacked folder, else the archive, else None."""
    if not _missing(root):
        return root / _FOLDER
    return root / _PACKED if (root / _PACKED).is_file() else None


def fetch_cifar100(root: Path, archive: Archive = OFFICIAL) -> None:
    """Download the archive to `root`, unless it is there or was unpacked there."""
    if find_cifar100(root) is None:
        _download(archive, root / _PACKED)


def read_cifar100(root: Path, archive: Archive = OFFICIAL) -> Dataset:
    """Read CIFAR-100 from `root`/cifar-100-python, unpacked from the archive beside it if need be."""
    if _missing(root):
        _unpack(root, archive)
    folder = root / _FOLDER
    train, test = _images(folder / "train", archive.train_md5), _images(folder / "test", archive.test_md5)
    positions = {str(position): position for position in range(len(train))}
    shots, notes = standard_shots("cifar100", positions.get, root / "index_list" / "cifar100")
    return Dataset("cifar100", _names(folder / "meta"), train, test, shots=shots, notes=notes)


def _missing(root: Path) -> list[str]:
    return [name for name in _FILES if not (root / _FOLDER / name).is_file()]


def _download(archive: Archive, target: Path) -> None:
    """Bring the archive to `target`, where it appears only once it is whole and its checksum is right."""
    import pooch  # `masil --help` comes by here
    import requests

    pooch.get_logger().setLevel("WARNING")
    name = target.name
    fetcher = pooch.create(
        target.parent, "", registry={name: f"md5:{archive.md5}"}, urls={name: archive.url}, retry_if_failed=3
    )
    try:
        with bar(f"{name} (MB)", archive.megabytes) as advance:
            shown = SimpleNamespace(
                update=lambda size: advance(size / 1e6), reset=lambda: advance(-archive.megabytes), close=lambda: None
            )  # as pooch drives a bar: at the end it resets it and fills it at once
            plain = {"Accept-Encoding": "identity"}  # else requests would unpack it, and the checksum be another
            downloader = pooch.HTTPDownloader(shown, chunk_size=_CHUNK, timeout=_SILENCE, headers=plain)
            fetcher.fetch(name, downloader=downloader)
        target.chmod(0o644)  # pooch lets only the user read it
    except requests.RequestException as error:
        raise DataError(f"{archive.url} could not be downloaded ({error}). Is the network up? Try again.") from error
    except ValueError as error:
        raise DataError(
            f"{archive.url} sent a file whose md5 is not {archive.md5}; it was thrown away. Try again later."
        ) from error
    except OSError as error:
        raise StorageError(f"{target} cannot be written ({error.strerror}).") from error


def _unpack(root: Path, archive: Archive) -> None:
    packed = root / _PACKED
    if not packed.is_file():
        raise DataError(
            f"CIFAR-100 is not in {root}: looked for {_PACKED}, and in {_FOLDER}/ for {', '.join(_missing(root))}. "
            f"Name the folder it is in with --data or MASIL_DATA, or fetch it ({archive.megabytes} MB) with "
            "--download (`download=True`)."
        )
    _check(packed, archive.md5, "Delete it, then fetch it again with --download (`download=True`).")
    with tarfile.open(packed) as tar:
        for name in _FILES:
            source = tar.extractfile(f"{_FOLDER}/{name}")
            assert source is not None, name
            with atomic_path(root / _FOLDER / name) as part, source, part.open("wb") as file:
                shutil.copyfileobj(source, file)


def _check(path: Path, md5: str, remedy: str) -> None:
    if (actual := digest(path, "md5")) != md5:
        raise DataError(f"{path} has the md5 {actual} instead of {md5}: it is damaged or only half there. {remedy}")


def _images(path: Path, md5: str) -> Images:
    _check(path, md5, f"Delete the folder {path.parent} and unpack or fetch it again (--download).")
    content = _unpickle(path, _ArrayUnpickler, "bytes")
    pixels = content[b"data"].reshape(-1, 3, 32, 32)
    pixels.flags.writeable = False
    return array_images(pixels, torch.tensor(content[b"fine_labels"]), f"{path.parent.name}/{path.name}")


def _names(path: Path) -> tuple[str, ...]:
    """Read the names of the classes, 'aquarium fish' for 'aquarium_fish'."""
    content = _unpickle(path, _PlainUnpickler, "ascii")
    if not isinstance(content, dict) or not isinstance(names := content.get("fine_label_names"), list):
        raise DataError(f"{path} does not hold the names of the classes. Unpack or fetch CIFAR-100 again.")
    return tuple(str(name).replace("_", " ") for name in names)


def _unpickle(path: Path, unpickler: type[pickle.Unpickler], encoding: str) -> Any:
    try:
        with path.open("rb") as file:
            return unpickler(file, encoding=encoding).load()
    except Exception as error:  # a damaged pickle makes the unpickler raise nearly anything
        raise DataError(f"{path} cannot be unpickled: {error}. Unpack or fetch CIFAR-100 again.") from error


class _PlainUnpickler(pickle.Unpickler):
    """Numbers, strings and containers; nothing that has a name to be imported."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")


class _ArrayUnpickler(_PlainUnpickler):
    """And what rebuilds an array of numbers."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {
            "numpy.core.multiarray._reconstruct": np.empty(0).__reduce__()[0],  # the module has moved since
            "numpy._core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
            "numpy.ndarray": np.ndarray,
            "numpy.dtype": np.dtype,
        }
        return allowed.get(f"{module}.{name}") or super().find_class(module, name)
