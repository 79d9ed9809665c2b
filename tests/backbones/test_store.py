"""Activations are extracted once: found again, told apart, continued after a death, shared by processes."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from masil.backbones import ActivationStore, create, extract, store
from masil.data import ArrayImages, Framing, Images
from masil.errors import DataError, StorageError

N, SIDE = 12, 16
CHOICE = {"engine": "torch", "device": "cpu", "batch": 2}


def tiny(**options: object):
    return create("resnet20", width=0.5, framing=(SIDE, SIDE), **options)


def images(seed: int = 0) -> ArrayImages:
    return ArrayImages(
        np.random.default_rng(seed).integers(0, 256, (N, 3, SIDE, SIDE), dtype=np.uint8), torch.arange(N)
    )


@pytest.fixture
def extracted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Positions of the batches extracted so far."""
    positions: list[int] = []
    whole = store.stream

    def counted(*arguments, **options):
        for first, rows in whole(*arguments, **options):
            positions.append(first)
            yield first, rows

    monkeypatch.setattr(store, "stream", counted)
    return positions


def test_extracted_once_and_found_again(tmp_path: Path, extracted: list[int]) -> None:
    first = ActivationStore(tmp_path).get(tiny(), images(), **CHOICE)
    torch.testing.assert_close(first, extract(tiny(), images(), **CHOICE), atol=1e-6, rtol=1e-5)
    extracted.clear()
    assert torch.equal(ActivationStore(tmp_path).get(tiny(), images(), **CHOICE), first)
    assert torch.equal(ActivationStore(tmp_path).get(tiny(), images().relabel(torch.zeros(N)), **CHOICE), first)
    assert extracted == []
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".lock", ".npy"]


def test_told_apart_by_weights_images_framing_and_flip(tmp_path: Path) -> None:
    shelf = ActivationStore(tmp_path)
    found = [
        shelf.get(tiny(), images(), **CHOICE),
        shelf.get(tiny(seed=1), images(), **CHOICE),
        shelf.get(tiny(), images(seed=1), **CHOICE),
        shelf.get(tiny(), images(), framing=Framing(20, SIDE), **CHOICE),
        shelf.get(tiny(), images(), flip=True, **CHOICE),
        shelf.get(tiny(), images().subset(list(range(N))[::-1]), **CHOICE),
    ]
    assert len(list(tmp_path.glob("*.npy"))) == len(found)
    torch.testing.assert_close(found[-1], found[0].flip(0), atol=1e-6, rtol=1e-5)  # another place in another batch
    assert not any(torch.equal(found[0], other) for other in found[1:])


def test_the_usual_place_is_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path))
    ActivationStore().get(tiny(), images(), **CHOICE)
    assert len(list((tmp_path / "activations").glob("resnet20-*.npy"))) == 1


def test_changes_stay_in_memory(tmp_path: Path) -> None:
    shelf = ActivationStore(tmp_path)
    first = shelf.get(tiny(), images(), **CHOICE)
    kept = first.clone()
    first.zero_()
    assert torch.equal(shelf.get(tiny(), images(), **CHOICE), kept)


def test_no_images(tmp_path: Path) -> None:
    assert ActivationStore(tmp_path).get(tiny(), images().subset([]), **CHOICE).shape == (0, 32)
    assert list(tmp_path.iterdir()) == []


def test_it_continues_after_an_error(tmp_path: Path, extracted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    load = Images.load

    def failing(self: Images, index: slice, framing: Framing) -> torch.Tensor:
        if index.start == 6:
            raise DataError("c.jpg cannot be read.")
        return load(self, index, framing)

    shelf = ActivationStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Images, "load", failing)
        with pytest.raises(DataError, match=r"c\.jpg"):
            shelf.get(tiny(), images(), **CHOICE)
    assert extracted == [0, 2, 4]
    # A death in the middle of a write leaves a part of a row.
    (part,) = tmp_path.glob("*.part")
    with part.open("ab") as file:
        file.write(b"half a row")
    found = shelf.get(tiny(), images(), **CHOICE)
    assert extracted == [0, 2, 4, 6, 8, 10]
    torch.testing.assert_close(found, extract(tiny(), images(), **CHOICE), atol=1e-6, rtol=1e-5)
    assert not part.exists()


def test_a_death_just_before_the_end(tmp_path: Path, extracted: list[int]) -> None:
    shelf = ActivationStore(tmp_path)
    whole = shelf.get(tiny(), images(), **CHOICE).clone()
    (file,) = tmp_path.glob("*.npy")
    file.rename(file.with_suffix(".part"))
    extracted.clear()
    assert torch.equal(shelf.get(tiny(), images(), **CHOICE), whole)
    assert extracted == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-3],
        lambda _: b"",
        lambda content: b"x" + content[1:],
        lambda content: content.replace(b"(12, 32)", b"(32, 12)"),
    ],
)
def test_a_damaged_file_is_extracted_again(tmp_path: Path, caplog: pytest.LogCaptureFixture, damage) -> None:
    shelf = ActivationStore(tmp_path)
    whole = shelf.get(tiny(), images(), **CHOICE).clone()
    (file,) = tmp_path.glob("*.npy")
    file.write_bytes(damage(file.read_bytes()))
    assert torch.equal(shelf.get(tiny(), images(), **CHOICE), whole)
    assert caplog.text.count("is damaged; its activations are extracted again") == 1


def test_a_part_that_is_something_else_is_begun_again(tmp_path: Path, extracted: list[int]) -> None:
    shelf = ActivationStore(tmp_path)
    whole = shelf.get(tiny(), images(), **CHOICE).clone()
    (file,) = tmp_path.glob("*.npy")
    file.with_suffix(".part").write_bytes(b"not one of ours" * 100)
    file.unlink()
    extracted.clear()
    assert torch.equal(shelf.get(tiny(), images(), **CHOICE), whole)
    assert extracted == list(range(0, N, 2))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def fsync(_: int) -> None:
        nonlocal written
        written += 1
        if written == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store.os, "fsync", fsync)
    with pytest.raises(StorageError, match=r"\.part: the disk is full\. The 4 rows before are kept"):
        ActivationStore(tmp_path).get(tiny(), images(), **CHOICE)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        ActivationStore(tmp_path / "file").get(tiny(), images(), **CHOICE)


# Another process that extracts the same, slowly, and says how many batches it extracted itself.
CHILD = f"""
import sys, time
import numpy as np, torch
from masil.backbones import ActivationStore, create, store
from masil.data import ArrayImages
whole, count = store.stream, 0
def slow(*arguments, **options):
    global count
    for item in whole(*arguments, **options):
        count += 1
        yield item
        time.sleep(0.1)
store.stream = slow
pixels = np.random.default_rng(0).integers(0, 256, ({N}, 3, {SIDE}, {SIDE}), dtype=np.uint8)
backbone = create("resnet20", width=0.5, framing=({SIDE}, {SIDE}))
images = ArrayImages(pixels, torch.arange({N}))
ActivationStore(sys.argv[1]).get(backbone, images, engine="torch", device="cpu", batch=2)
print(count, flush=True)
"""


def start_child(folder: Path) -> "subprocess.Popen[str]":
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True)
    patience = time.monotonic() + 120
    while not any(part.stat().st_size > 300 for part in folder.glob("*.part")):  # a header has 128 bytes, two rows 256
        assert child.poll() is None, "the child ended too early"
        assert time.monotonic() < patience
        time.sleep(0.01)
    return child


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_killed_in_the_middle(tmp_path: Path, extracted: list[int]) -> None:
    with start_child(tmp_path) as child:
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    found = ActivationStore(tmp_path).get(tiny(), images(), **CHOICE)
    assert 0 < len(extracted) < N // 2
    torch.testing.assert_close(found, extract(tiny(), images(), **CHOICE), atol=1e-6, rtol=1e-5)


def test_two_processes_at_once(tmp_path: Path, extracted: list[int]) -> None:
    with start_child(tmp_path) as child:
        found = ActivationStore(tmp_path).get(tiny(), images(), **CHOICE)
        assert child.communicate()[0].strip() == str(N // 2)
    assert extracted == []
    torch.testing.assert_close(found, extract(tiny(), images(), **CHOICE), atol=1e-6, rtol=1e-5)
