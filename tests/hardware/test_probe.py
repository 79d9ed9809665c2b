import json
import os
from pathlib import Path

import pytest

from masil.hardware import answers, compile_pays, probe
from masil.hardware.machine import key

HONEST = "train('float32', 100); train('bfloat16', 300); say(done=True)"
LYING = "train('float32', 256); train('bfloat16', 150, deadly=isa is None and 'convolution'); say(done=True)"


@pytest.fixture
def forget(monkeypatch):
    """Give a function that makes this process forget its answers, as a new process would not know them."""
    return lambda: monkeypatch.setattr(answers, "_ANSWERS", {})


def cache_file(tmp_path):
    return tmp_path / "cache" / "hardware" / f"{key()}.json"


def test_a_machine_is_tried_once(machine, asked, tmp_path, forget):
    command = machine(HONEST)
    first = probe(command=command)
    assert len(asked()) == 2
    assert probe(command=command) is first
    forget()
    assert probe(command=command) == first
    assert len(asked()) == 2
    assert json.loads(cache_file(tmp_path).read_text())["precisions"] == {"cpu": "bfloat16"}


def test_refresh_tries_again(machine, asked):
    probe(command=machine(HONEST))
    again = probe(refresh=True, command=machine(LYING))
    assert again.onednn_isa == "AVX512_CORE_FP16"
    assert probe(command=["/no/such/child"]) == again


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\xff\xfe{"),
        lambda file: file.write_text("[]"),
        lambda file: file.write_text(file.read_text().replace('"cpu"', '"tpu"')),
        lambda file: file.write_text(file.read_text().replace(key(), "another machine")),
        lambda file: (file.unlink(), file.mkdir()),
    ],
)
def test_a_damaged_cache_is_no_cache(machine, asked, tmp_path, forget, damage):
    command = machine(HONEST)
    first = probe(command=command)
    damage(cache_file(tmp_path))
    forget()
    second = probe(command=command)
    assert len(asked()) == 4
    assert (second.precisions, second.key) == (first.precisions, first.key)


def test_a_cache_that_cannot_be_written_costs_one_probe_a_process(machine, asked, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path / "file"))
    command = machine(HONEST)
    assert probe(command=command) is probe(command=command)
    assert len(asked()) == 2


def test_a_user_without_a_home_is_served_without_a_cache(machine, asked, monkeypatch, forget):
    def homeless(*_):
        raise RuntimeError("Could not determine home directory.")

    forget()
    monkeypatch.setattr(answers, "cache_folder", homeless)
    command = machine(HONEST)
    assert probe(command=command) is probe(command=command)
    assert len(asked()) == 2


def test_an_assumed_answer_is_not_kept_for_later(machine, tmp_path, forget):
    assert not probe(command=["/no/such/child"]).settled
    assert not cache_file(tmp_path).exists()
    forget()
    assert probe(command=machine(HONEST)).settled


def test_the_answer_is_adopted(machine):
    probe(command=machine(LYING))
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_FP16"


def test_compiling_is_tried_when_it_is_asked_for_and_once(machine, asked, forget, tmp_path):
    command = machine("""
        if arguments[0] == "compile":
            say(stage="eager step", ms=40); say(begin="compiled step")
            assert os.path.isdir(os.environ["TORCHINDUCTOR_CACHE_DIR"])
            say(stage="compiled step", ms=20); say(stage="folder", where=os.environ["TORCHINDUCTOR_CACHE_DIR"])
        else:
            train("float32", 100); train("bfloat16", 90)
        say(done=True)
    """)
    assert probe(command=command).compile is None
    assert not compile_pays("cuda", command=command)
    assert len(asked()) == 2
    assert compile_pays(command=command)
    assert asked()[2:] == ["None compile cpu float32"]
    forget()
    assert compile_pays("cpu", command=command)
    assert probe(command=command).compile is True
    assert len(asked()) == 3


def test_a_compiler_that_crashes_does_not_pay(machine):
    body = "arguments[0] == 'compile' and (say(begin='compiled step'), die('SIGILL')); " + HONEST
    assert not compile_pays(command=machine(body))
    assert probe().failures == {"cpu compiled step": "killed by SIGILL (illegal instruction)"}


def test_what_does_not_work_is_not_compiled_for(machine, asked):
    assert not compile_pays(command=["/no/such/child"])
    dead = machine("train('float32', 100, deadly='convolution')")
    assert probe(refresh=True, command=dead).precisions == {}
    before = asked()
    assert not compile_pays(command=dead)
    assert asked() == before


def test_the_real_machine_can_be_probed(forget):
    """The trials themselves, on whatever this machine is: float32 must come through everywhere."""
    hardware = probe()
    assert hardware.settled
    assert "cpu" in hardware.precisions
    assert hardware.threads >= 1
    for stage in ("matrix product GFLOP/s", "convolution GFLOP/s", "training images/s"):
        names = [name for name in hardware.measurements if name.startswith(f"cpu float32 {stage}")]
        assert all(hardware.measurements[name] > 0 for name in names)
        assert names
    assert Path(answers._file()).exists()
