import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from masil.data import ArrayImages, FileImages, Framing
from masil.data.files import content_digest, in_threads, on_this_thread
from masil.errors import DataError, InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for i in range(40):
        Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    return tmp_path


def images(folder: Path, n: int = 40) -> FileImages:
    return FileImages(folder, [f"{i}.png" for i in range(n)], torch.arange(n) % 4)


def test_files_load_as_the_same_pixels_held_in_an_array_do(folder: Path) -> None:
    files = images(folder)
    stored = np.stack([np.asarray(Image.open(folder / f"{i}.png")).transpose(2, 0, 1) for i in range(40)])
    arrays = ArrayImages(stored, files.labels)
    for index in (slice(None), [39, 0, 0, 7], torch.tensor([5]), files.labels == 2, []):
        assert torch.equal(files.load(index, Framing(12, 12)), arrays.load(index, Framing(12, 12)))
        difference = files.load(index, Framing(9, 8)).int() - arrays.load(index, Framing(9, 8)).int()
        assert difference.abs().le(2).all()  # two passes, each rounded to 8 bits


def test_subsets_are_views_that_keep_names_and_labels(folder: Path) -> None:
    part = images(folder).subset([30, 3]).subset([1, 0, 1])
    assert [part.name(i) for i in range(3)] == ["3.png", "30.png", "3.png"]
    assert part.labels.tolist() == [3, 2, 3]
    assert part.path(1) == folder / "30.png"
    assert part.relabel(torch.tensor([7, 8, 9])).labels.tolist() == [7, 8, 9]
    assert part.relabel(torch.tensor([7, 8, 9])).files is part.files


def test_a_bad_file_is_named_though_others_are_being_read(folder: Path) -> None:
    (folder / "17.png").write_bytes((folder / "17.png").read_bytes()[:60])
    (folder / "31.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"17\.png is damaged or cut short"):
        images(folder).load(slice(None), Framing(8, 8))


def test_the_fingerprint_is_of_contents_in_order_and_follows_changes(folder: Path, tmp_path: Path) -> None:
    files = images(folder)
    before = files.fingerprint()
    assert before == files.relabel(files.labels + 1).fingerprint() == images(folder).fingerprint()
    assert before != files.subset(list(range(39, -1, -1))).fingerprint()
    (folder / "3.png").rename(folder / "other.png")
    renamed = FileImages(folder, [*files.files[:3], "other.png", *files.files[4:]], files.labels)
    assert renamed.fingerprint() == before
    Image.new("RGB", (12, 12)).save(folder / "other.png")
    assert renamed.fingerprint() != before
    with pytest.raises(DataError, match=r"3\.png cannot be read \(No such file or directory\)"):
        files.fingerprint()


def test_an_unchanged_file_is_hashed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(folder / "0.png")
    digest = content_digest(path)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("read again"))
    assert content_digest(path) == digest


def test_files_can_be_sent_to_another_process(folder: Path) -> None:
    files = images(folder)
    again = pickle.loads(pickle.dumps(files))
    assert torch.equal(again.load([1, 2], Framing(8, 8)), files.load([1, 2], Framing(8, 8)))


def test_labels_must_match_the_files(folder: Path) -> None:
    with pytest.raises(InputError, match="There are 2 images but 3 labels"):
        FileImages(folder, ["0.png", "1.png"], torch.zeros(3))


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
