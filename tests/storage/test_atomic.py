import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from masil.errors import StorageError
from masil.storage import atomic_path, cache_folder, digest, locked, read_json, write_bytes, write_json


def test_a_write_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    target = tmp_path / "new" / "model.json"
    write_json(target, {"é": 1})
    write_json(target, {"é": 2})
    assert read_json(target) == {"é": 2}
    assert list(target.parent.iterdir()) == [target]
    (tmp_path / "ordinary").write_bytes(b"")
    assert len({stat.S_IMODE(path.stat().st_mode) for path in (target, tmp_path / "ordinary")}) == 1


def test_an_error_while_writing_keeps_the_old_file(tmp_path):
    target = tmp_path / "kept"
    write_bytes(target, b"old")
    with pytest.raises(RuntimeError, match="half way"), atomic_path(target) as part:
        part.write_bytes(b"new, but only half of i")
        raise RuntimeError("half way")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_process_killed_while_writing_leaves_the_old_file(tmp_path):
    target = tmp_path / "kept"
    write_bytes(target, b"old")
    script = (
        "import os, signal, sys, pathlib\n"
        "from masil.storage import atomic_path\n"
        "with atomic_path(pathlib.Path(sys.argv[1])) as part:\n"
        "    part.write_bytes(b'x' * 100000)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.ENOSPC, "The disk is full: .*model was not written, and what was there before is unchanged"),
        (errno.EACCES, "model cannot be written: no permission to write in"),
        (errno.EIO, r"model cannot be written \(.*Input/output error"),
    ],
)
def test_a_disk_that_refuses_is_a_sentence(tmp_path, monkeypatch, code, sentence):
    def refuse(_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(StorageError, match=sentence):
        write_bytes(tmp_path / "model", b"new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="model cannot be written: .*file is a file and no folder"):
        write_bytes(tmp_path / "file" / "model", b"new")


def test_unreadable_json_is_a_sentence(tmp_path):
    with pytest.raises(StorageError, match="There is no file"):
        read_json(tmp_path / "absent")
    (tmp_path / "half").write_text('{"a": ')
    with pytest.raises(StorageError, match="half cannot be read as JSON"):
        read_json(tmp_path / "half")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "nan", float("nan"))


def test_digest_is_the_known_one(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert digest(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest(tmp_path / "abc", "md5") == "900150983cd24fb0d6963f7d28e17f72"


@pytest.mark.skipif(sys.platform != "linux", reason="where caches are on Windows and macOS, platformdirs knows")
def test_the_cache_is_where_the_user_says_or_in_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path))
    assert cache_folder("onnx") == tmp_path / "onnx"
    monkeypatch.setenv("MASIL_CACHE", "~/here")
    assert cache_folder() == Path.home() / "here"
    monkeypatch.delenv("MASIL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "masil"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("data") == Path.home() / ".cache" / "masil" / "data"


# Locks


def test_one_at_a_time_and_none_where_there_can_be_no_lock(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(StorageError, match=r"a\.lock cannot be written: .*file is a file and no folder"),
        locked(tmp_path / "file" / "a.lock"),
    ):
        pass
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        for _ in range(20):
            with locked(tmp_path / "folder" / "a.lock"):
                inside += 1
                most = max(most, inside)
                threading.Event().wait(0.0005)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_holder_that_is_killed_lets_go(tmp_path):
    # The child takes the lock as another process does, and would never give it back.
    script = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'ab'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(600)"
    )
    if sys.platform == "win32":
        pytest.skip("needs POSIX locks")
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "a.lock")], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        entered = threading.Event()

        def enter():
            with locked(tmp_path / "a.lock"):
                entered.set()

        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.2)
        child.kill()
        assert entered.wait(20)
        waiting.join()
