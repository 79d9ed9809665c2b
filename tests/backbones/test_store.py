"""Activations are extracted once: found again, told apart, continued after a death, shared by processes."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from masil.backbones import MIRRORED, ActivationStore, View, extract, stream
from masil.data import Framing, Images, array_images
from masil.errors import DataError, StorageError

N, SIDE = 12, 16
CHOICE = {"engine": "torch", "device": "cpu", "batch": 2}


@pytest.fixture
def extracted(monkeypatch):
    """Positions of the batches extracted so far."""
    positions: list[int] = []

    def counted(*arguments, **options):
        for first, rows in stream(*arguments, **options):
            positions.append(first)
            yield first, rows

    monkeypatch.setattr("masil.backbones.store.stream", counted)
    return positions


@pytest.fixture
def get(tmp_path, tiny, images):
    """Give a function that asks a new store for the activations of twelve images."""

    def ask(backbone=None, some=None, **options):
        some = images(N) if some is None else some
        return ActivationStore(tmp_path).get(backbone or tiny(), some, **CHOICE, **options)

    return ask


def test_extracted_once_and_found_again(get, tiny, images, tmp_path, extracted):
    first = get()
    torch.testing.assert_close(first, extract(tiny(), images(N), **CHOICE), atol=1e-6, rtol=1e-5)
    extracted.clear()
    assert torch.equal(get(), first)
    assert torch.equal(get(some=images(N).relabel(torch.zeros(N))), first)
    assert extracted == []
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".lock", ".npy"]
    kept = first.clone()
    first.zero_()  # changes stay in memory
    assert torch.equal(get(), kept)


def test_told_apart_by_weights_images_framing_and_view(get, tiny, images, tmp_path):
    all_rows = [
        get(),
        get(tiny(seed=1)),
        get(some=images(N, seed=1)),
        get(framing=Framing(20, SIDE)),
        get(view=MIRRORED),
        get(view=View(0.25)),
        get(some=images(N).subset(list(range(N))[::-1])),
    ]
    assert len(list(tmp_path.glob("*.npy"))) == len(all_rows)
    torch.testing.assert_close(
        all_rows[-1], all_rows[0].flip(0), atol=1e-6, rtol=1e-5
    )  # another place in another batch
    assert not any(torch.equal(all_rows[0], other) for other in all_rows[1:])


def test_files_of_earlier_versions_are_found(tmp_path, tiny):
    backbone = tiny()
    with torch.no_grad():
        for i, tensor in enumerate(backbone.state_dict().values()):
            tensor.fill_(i * 1e-3)
    pixels = np.arange(2 * 3 * SIDE * SIDE).reshape(2, 3, SIDE, SIDE).astype(np.uint8)
    images = array_images(pixels, torch.arange(2))
    for flip, key in ((False, "2d519c3149ba38353ca2812dc3568661"), (True, "4bf97bb553c914235c2a850bb141afd4")):
        rows = torch.full((2, 32), float(flip))
        np.save(tmp_path / f"resnet20-{key}.npy", rows.numpy())
        assert torch.equal(
            ActivationStore(tmp_path).get(backbone, images, view=View(mirrored=flip), device="no such device"), rows
        )


def test_the_usual_place_is_the_cache(tiny, images, tmp_path, monkeypatch):
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path))
    ActivationStore().get(tiny(), images(N), **CHOICE)
    assert len(list((tmp_path / "activations").glob("resnet20-*.npy"))) == 1


def test_no_images(get, images, tmp_path):
    assert get(some=images(0)).shape == (0, 32)
    assert list(tmp_path.iterdir()) == []


def test_it_continues_after_an_error(get, tiny, images, tmp_path, extracted, monkeypatch):
    load = Images.load_checked

    def failing(self, index, framing):
        if index.start == 6:
            raise DataError("c.jpg cannot be read.")
        return load(self, index, framing)

    with monkeypatch.context() as patch:
        patch.setattr(Images, "load_checked", failing)
        with pytest.raises(DataError, match=r"c\.jpg"):
            get()
    assert extracted == [0, 2, 4]
    # A death in the middle of a write leaves a part of a row.
    (part,) = tmp_path.glob("*.part")
    with part.open("ab") as file:
        file.write(b"half a row")
    rows = get()
    assert extracted == [0, 2, 4, 6, 8, 10]
    torch.testing.assert_close(rows, extract(tiny(), images(N), **CHOICE), atol=1e-6, rtol=1e-5)
    assert not part.exists()


def test_a_whole_part_is_taken_and_one_that_is_something_else_is_begun_again(get, tmp_path, extracted):
    whole = get().clone()
    (file,) = tmp_path.glob("*.npy")
    file.rename(file.with_suffix(".part"))  # as after a death just before the end
    extracted.clear()
    assert torch.equal(get(), whole)
    assert extracted == []
    file.with_suffix(".part").write_bytes(b"not one of ours" * 100)
    file.unlink()
    assert torch.equal(get(), whole)
    assert extracted == list(range(0, N, 2))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-3],
        lambda _: b"",
        lambda content: b"x" + content[1:],
        lambda content: content.replace(b"(12, 32)", b"(32, 12)"),
    ],
)
def test_a_damaged_file_is_extracted_again(get, tmp_path, caplog, damage):
    whole = get().clone()
    (file,) = tmp_path.glob("*.npy")
    file.write_bytes(damage(file.read_bytes()))
    assert torch.equal(get(), whole)
    assert caplog.text.count("is damaged; its activations are extracted again") == 1


def test_a_full_disk_and_a_folder_that_cannot_be_written(get, tiny, images, tmp_path, monkeypatch):
    written = 0

    def fsync(_):
        nonlocal written
        written += 1
        if written == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError, match=r"\.part: the disk is full\. The 4 rows before are kept"):
        get()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        ActivationStore(tmp_path / "file").get(tiny(), images(N), **CHOICE)


# Another process that extracts the same, waits after two batches for a file, and says how many it extracted itself.
CHILD = f"""
import sys, time
from pathlib import Path
import numpy as np, torch
from masil.backbones import ActivationStore, create
import masil.backbones.store as store
from masil.data import array_images
whole, count = store.stream, 0
def halting(*arguments, **options):
    global count
    for item in whole(*arguments, **options):
        count += 1
        yield item
        while count == 2 and not Path(sys.argv[1], "go").exists():
            time.sleep(0.01)
store.stream = halting
pixels = np.random.default_rng(0).integers(0, 256, ({N}, 3, {SIDE}, {SIDE}), dtype=np.uint8)
backbone = create("resnet20", width=0.5, framing=({SIDE}, {SIDE}))
images = array_images(pixels, torch.arange({N}))
ActivationStore(sys.argv[1]).get(backbone, images, engine="torch", device="cpu", batch=2)
print(count, flush=True)
"""


def start_child(folder):
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True)
    patience = time.monotonic() + 120
    while not any(part.stat().st_size == 128 + 4 * 128 for part in folder.glob("*.part")):  # header, four rows
        assert child.poll() is None, "the child ended too early"
        assert time.monotonic() < patience
        time.sleep(0.01)
    return child


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_killed_in_the_middle(get, tiny, images, tmp_path, extracted):
    with start_child(tmp_path) as child:
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    rows = get()
    assert extracted == list(range(4, N, 2))
    torch.testing.assert_close(rows, extract(tiny(), images(N), **CHOICE), atol=1e-6, rtol=1e-5)


def test_two_processes_at_once(get, tiny, images, tmp_path, extracted):
    with start_child(tmp_path) as child:
        threading.Timer(0.3, (tmp_path / "go").touch).start()  # while this process waits
        rows = get()
        assert child.communicate()[0].strip() == str(N // 2)
    assert extracted == []
    torch.testing.assert_close(rows, extract(tiny(), images(N), **CHOICE), atol=1e-6, rtol=1e-5)
