"""A lock keeps others out until its holder ends, and nothing more."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from masil.errors import StorageError
from masil.files import locked


def test_one_at_a_time(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
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


def test_a_holder_that_is_killed_lets_go(tmp_path: Path) -> None:
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

        def enter() -> None:
            with locked(tmp_path / "a.lock"):
                entered.set()

        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.2)
        child.kill()
        assert entered.wait(20)
        waiting.join()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"a\.lock cannot be written"), locked(tmp_path / "file" / "a.lock"):
        pass
