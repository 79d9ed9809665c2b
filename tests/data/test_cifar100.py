import gzip
import hashlib
import io
import os
import pickle
import tarfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from masil.data import Framing
from masil.data.cifar100 import Archive, fetch_cifar100, find_cifar100, read_cifar100
from masil.errors import DataError, StorageError

NAMES = ["apple", "aquarium_fish", "baby"]


def md5(content):
    return hashlib.md5(content).hexdigest()


def old_pickle(content):
    """A pickle like the official ones: byte strings, and numpy's module under its old name."""
    written = pickle.dumps(content, protocol=3)
    return written.replace(b"cnumpy._core.multiarray", b"cnumpy.core.multiarray")


def split(n, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)
    return old_pickle({b"data": pixels, b"fine_labels": [i % 3 for i in range(n)], b"filenames": [b"x.png"] * n})


FILES = {"train": split(12, 0), "test": split(6, 1), "meta": pickle.dumps({"fine_label_names": NAMES}, protocol=2)}


def packed(files):
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,  # without the clock: every worker has the same md5
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


PACKED = packed(FILES)
ARCHIVE = Archive("http://127.0.0.1:9/none", md5(PACKED), md5(FILES["train"]), md5(FILES["test"]))


def unpack(root, **changed):
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, content in {**FILES, **changed}.items():
        (folder / name).write_bytes(content)
    return root


@pytest.fixture
def serve(monkeypatch):
    """Start a server that gives one answer a request as told, then the archive, and give where it is."""
    script: list[str] = []

    class Scripted(BaseHTTPRequestHandler):
        def do_GET(self):
            behaviour = script.pop(0) if script else "well"
            if behaviour.isdigit():
                self.send_error(int(behaviour))
                return
            body = bytes(len(PACKED)) if behaviour == "wrong" else PACKED
            self.send_response(200)
            if behaviour != "half without length":
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if "half" in behaviour else body)
            self.close_connection = True

        def log_message(self, *_): ...

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()

        def told(*behaviours):
            script[:] = behaviours
            return replace(ARCHIVE, url=f"http://127.0.0.1:{server.server_port}/archive")

        yield told
        server.shutdown()
        thread.join()


def test_pixels_labels_and_names_are_those_of_the_archive(tmp_path):
    data = read_cifar100(unpack(tmp_path), ARCHIVE)
    assert data.classes == ("apple", "aquarium fish", "baby")
    assert data.train.labels.tolist() == [i % 3 for i in range(12)]
    expected = np.random.default_rng(1).integers(0, 256, (6, 3072), dtype=np.uint8).reshape(6, 3, 32, 32)
    assert np.array_equal(data.test.load(slice(None), Framing(32, 32)).numpy(), expected)
    assert data.test.name(4) == "cifar-100-python/test[4]"
    assert data.shots is None
    assert data.notes == ("200 of the 200 standard shots are not among the training images: draw shots instead.",)
    pixels = data.train.source.pixels
    assert not pixels.flags.owndata  # not copied, and not to be changed
    with pytest.raises(ValueError, match="read-only"):
        pixels[0] = 0


def test_an_archive_is_unpacked_once(tmp_path):
    packed_file = tmp_path / "cifar-100-python.tar.gz"
    packed_file.write_bytes(PACKED)
    assert find_cifar100(tmp_path) == packed_file
    assert len(read_cifar100(tmp_path, ARCHIVE).train) == 12
    packed_file.unlink()
    assert len(read_cifar100(tmp_path, ARCHIVE).train) == 12
    assert find_cifar100(tmp_path) == tmp_path / "cifar-100-python"
    assert sorted(file.name for file in (tmp_path / "cifar-100-python").iterdir()) == ["meta", "test", "train"]


def test_a_half_unpacked_folder_and_a_half_downloaded_archive_are_said(tmp_path):
    (unpack(tmp_path / "half") / "cifar-100-python" / "test").unlink()
    with pytest.raises(DataError, match=r"and in cifar-100-python/ for test\. "):
        read_cifar100(tmp_path / "half", ARCHIVE)
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(PACKED[:-100])
    with pytest.raises(
        DataError, match=rf"\.tar\.gz has the md5 {md5(PACKED[:-100])} instead of {md5(PACKED)}: it is da"
    ):
        read_cifar100(tmp_path, ARCHIVE)
    assert not (tmp_path / "cifar-100-python").exists()


class Bomb:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("name", ["train", "test"])
def test_a_wrong_checksum_is_said_before_anything_is_unpickled(tmp_path, name):
    unpack(tmp_path, **{name: pickle.dumps(Bomb(tmp_path / "ran"))})
    with pytest.raises(
        DataError, match=rf"{name} has the md5 [0-9a-f]+ instead of {md5(FILES[name])}: it is damaged or"
    ):
        read_cifar100(tmp_path, ARCHIVE)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["train", "meta"])
def test_a_pickle_that_would_run_something_is_refused_even_with_the_right_checksum(tmp_path, name):
    bomb = pickle.dumps(Bomb(tmp_path / "ran"))
    unpack(tmp_path, **{name: bomb})
    archive = Archive("", "", md5(bomb) if name == "train" else ARCHIVE.train_md5, ARCHIVE.test_md5)
    with pytest.raises(DataError, match=rf"{name} cannot be unpickled: it asks for \w+\.mkdir, which is not allowed"):
        read_cifar100(tmp_path, archive)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("meta", "sentence"),
    [
        (old_pickle({b"fine_label_names": np.zeros(3)}),  # names may not even hold an array
         r"meta cannot be unpickled: it asks for numpy\.core\.multiarray\._reconstruct"),
        (FILES["meta"][:20], "meta cannot be unpickled: "),
        *((pickle.dumps(odd), "meta does not hold the names of the classes") for odd in ([1, 2], {"names": NAMES}, 7)),
    ],
)  # fmt: skip
def test_names_that_are_damaged_or_not_there_are_said(tmp_path, meta, sentence):
    with pytest.raises(DataError, match=sentence):
        read_cifar100(unpack(tmp_path, meta=meta), ARCHIVE)


def test_what_is_missing_is_fetched_and_what_is_there_is_not(tmp_path, serve):
    root, archive = tmp_path / "data", serve("half", "half without length", "503")  # and then well
    fetch_cifar100(root, archive)
    assert [file.name for file in root.iterdir()] == ["cifar-100-python.tar.gz"]
    assert (root / "cifar-100-python.tar.gz").stat().st_mode & 0o777 == 0o644
    assert len(read_cifar100(root, archive).train) == 12
    fetch_cifar100(root, ARCHIVE)  # its address does not answer
    (root / "cifar-100-python.tar.gz").unlink()
    fetch_cifar100(root, ARCHIVE)


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        ("404", r"archive could not be downloaded \(404 .*Not Found.*\)\. Is the network up\?"),
        ("half", r"could not be downloaded \(.*IncompleteRead.*\)\. Is the network up\?"),
        ("half without length", f"sent a file whose md5 is not {ARCHIVE.md5}; it was thrown away"),
        ("wrong", f"sent a file whose md5 is not {ARCHIVE.md5}; it was thrown away"),
    ],
)
def test_a_download_that_fails_is_said_and_leaves_nothing(tmp_path, serve, behaviour, sentence):
    with pytest.raises(DataError, match=sentence):
        fetch_cifar100(tmp_path, serve(*[behaviour] * 4))
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_and_a_folder_that_cannot_be_are_said(tmp_path, serve):
    with pytest.raises(DataError, match=r"127\.0\.0\.1:9/none could not be downloaded \(.*refused.*\)"):
        fetch_cifar100(tmp_path, ARCHIVE)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cifar-100-python\.tar\.gz cannot be written"):
        fetch_cifar100(tmp_path / "file", serve())


def test_python_2_strings_are_read_too(tmp_path):
    """The official meta holds byte strings throughout: {'fine_label_names': ['apple']} as Python 2 writes it."""
    meta = b"\x80\x02}U\x10fine_label_names]U\x05applea" + b"U\x04pearaU\x04plumas."
    assert read_cifar100(unpack(tmp_path, meta=meta), ARCHIVE).classes == ("apple", "pear", "plum")
