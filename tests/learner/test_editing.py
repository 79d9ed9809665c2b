"""One at a time: whoever changes a model holds it, and no lesson is lost."""

import subprocess
import sys
import threading
import time

import pytest
import torch

from masil.errors import StorageError
from masil.learner import Masil, editing


def test_lessons_taught_at_once_are_all_there(fitted, tmp_path):
    path = tmp_path / "m"
    fitted.save(path)

    def teach(name):
        for turn in range(3):
            with editing(path):
                model = Masil.load(path)
                rows = torch.rand(2, 24, generator=torch.Generator().manual_seed(turn))
                model.learn(rows, [f"{name} {turn}"] * 2)
                model.save(path)

    threads = [threading.Thread(target=teach, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model = Masil.load(path)
    assert {f"{name} {turn}" for name in "xyz" for turn in range(3)} <= set(model.classes_.tolist())
    assert len(model.sessions_) == 10
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def test_patience_ends_in_a_sentence(tmp_path):
    with (
        editing(tmp_path / "m", new=True),
        pytest.raises(StorageError, match="Another process is writing .*m, for more than 0 s now.*Nothing was changed"),
        editing(tmp_path / "m", new=True, patience=0.1),
    ):
        pass
    with editing(tmp_path / "m", new=True, patience=0):  # let go
        pass


def test_a_process_that_dies_lets_go(tmp_path):
    script = (
        "import sys, time\n"
        "from masil.learner import editing\n"
        "with editing(sys.argv[1], new=True):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(600)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, tmp_path / "m"], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match="Another process"), editing(tmp_path / "m", new=True, patience=0):
            pass
        holder.kill()
        holder.wait()
        start = time.monotonic()
        with editing(tmp_path / "m", new=True, patience=30) as path:
            assert path == tmp_path / "m"
        assert time.monotonic() - start < 30


def test_a_link_leads_to_the_model_itself(tmp_path):
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with editing(tmp_path / "link") as path:
        assert path == tmp_path / "real"
        with pytest.raises(StorageError, match="Another process"), editing(tmp_path / "real", patience=0):
            pass


def test_what_is_not_there_is_not_held(tmp_path):
    with pytest.raises(StorageError, match="There is no model at .*none.masil"), editing(tmp_path / "x" / "none.masil"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(StorageError, match="is a folder; a model is one file"), editing(tmp_path):
        pass
