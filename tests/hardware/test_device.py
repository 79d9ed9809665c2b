"""The machine's answer in this process: asked once, oneDNN limited in time, device, precision and threads by it."""

import json
import os
import subprocess
import sys
import types
from dataclasses import replace

import pytest
import torch

from masil.errors import DeviceError
from masil.hardware import (
    Hardware,
    best_seconds,
    import_torch,
    machine_key,
    precision,
    prepare,
    probe,
    remember,
    resolve_device,
    time_in_turn,
)
from masil.hardware.machine import cpu_flags

HONEST = "train('float32', 100); train('bfloat16', 300); say(done=True)"
LYING = "train('float32', 256); train('bfloat16', 150, deadly=isa is None and 'convolution'); say(done=True)"
PLAIN = Hardware("cpu", {"cpu": "bfloat16"}, threads=2, measurements={"cpu float32 training images/s": 100.0})
LIMITED = replace(PLAIN, onednn_isa="AVX2")


@pytest.fixture
def forget(monkeypatch):
    """Give a function that makes this process forget its answers, as a new process would not know them."""
    return lambda: monkeypatch.setattr("masil.hardware.device._answers", {})


@pytest.fixture
def cache_file(tmp_path):
    return tmp_path / "cache" / "hardware" / f"{machine_key()}.json"


# Asked once


def test_a_machine_is_tried_once_unless_it_is_to_be_tried_again(machine, asked, cache_file, forget):
    command = machine(HONEST)
    first = probe(command=command)
    assert probe(command=command) is first
    forget()
    assert probe(command=command) == first
    assert len(asked()) == 1
    assert json.loads(cache_file.read_text())["precisions"] == {"cpu": "bfloat16"}
    again = probe(refresh=True, command=machine(LYING))
    assert again.onednn_isa == os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_FP16"
    assert probe(command=["/no/such/child"]) == again


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\xff\xfe{"),
        lambda file: file.write_text("[]"),
        lambda file: file.write_text(file.read_text().replace('"cpu"', '"tpu"')),
        lambda file: file.write_text(file.read_text().replace(machine_key(), "another machine")),
        lambda file: (file.unlink(), file.mkdir()),
    ],
)
def test_a_damaged_cache_is_no_cache(machine, asked, cache_file, forget, damage):
    command = machine(HONEST)
    first = probe(command=command)
    damage(cache_file)
    forget()
    second = probe(command=command)
    assert len(asked()) == 2
    assert (second.precisions, second.key) == (first.precisions, first.key)


@pytest.mark.parametrize("home", ["a file in the way", "none"])
def test_without_a_cache_the_machine_is_tried_once_a_process(machine, asked, tmp_path, monkeypatch, forget, home):
    def homeless(*_):
        raise RuntimeError("Could not determine home directory.")

    forget()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path / "file"))
    if home == "none":
        monkeypatch.setattr("masil.hardware.device.cache_folder", homeless)
    command = machine(HONEST)
    assert probe(command=command) is probe(command=command)
    assert len(asked()) == 1


def test_an_assumed_answer_is_not_kept_for_later(machine, cache_file, forget):
    assert not probe(command=["/no/such/child"]).settled
    assert not cache_file.exists()
    forget()
    assert probe(command=machine(HONEST)).settled


def test_the_real_machine_can_be_probed(forget, cache_file):
    """The trials themselves, on whatever this machine is: float32 must come through everywhere."""
    hardware = probe()
    assert hardware.settled
    assert "cpu" in hardware.precisions
    assert hardware.threads >= 1
    for stage in ("matrix product GFLOP/s", "convolution GFLOP/s", "training images/s"):
        speeds = [value for name, value in hardware.measurements.items() if name.startswith(f"cpu float32 {stage}")]
        assert speeds
        assert min(speeds) > 0
    assert cache_file.exists()


# oneDNN's limit


@pytest.fixture
def torch_is(monkeypatch):
    """Give a function that lets torch seem imported, or not."""

    def pretend(imported):
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        if imported:
            monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))

    pretend(False)
    return pretend


def test_nothing_known_and_a_trial_change_nothing_and_nothing_is_raised(torch_is, monkeypatch):
    prepare()
    remember(LIMITED)
    monkeypatch.setenv("MASIL_TRIAL", "1")
    prepare()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ
    monkeypatch.delenv("MASIL_TRIAL")
    monkeypatch.setattr("masil.hardware.device._known", lambda: 1 / 0)
    prepare()


@pytest.mark.parametrize(
    ("answer", "torch_first", "expected"),
    [(LIMITED, False, "bfloat16"), (LIMITED, True, "float32"), (PLAIN, False, "bfloat16"), (PLAIN, True, "bfloat16")],
)
def test_a_limit_surely_holds_only_if_it_is_set_before_torch(torch_is, answer, torch_first, expected):
    torch_is(torch_first)
    remember(answer)
    prepare()
    assert os.environ.get("ONEDNN_MAX_CPU_ISA") == answer.onednn_isa  # even if late: it may still help, and children
    torch_is(True)
    assert precision(answer, "cpu") == expected


@pytest.mark.parametrize(("set_by_user", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_a_limit_found_after_torch_was_imported_holds_only_if_the_user_had_set_it(
    torch_is, monkeypatch, set_by_user, expected
):
    if set_by_user:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    prepare()
    torch_is(True)
    remember(LIMITED)
    assert precision(probe(), "cpu") == expected


def test_a_limit_of_unknown_age_means_float32(torch_is, monkeypatch):
    torch_is(True)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    prepare()
    assert precision(LIMITED, "cpu") == "float32"
    # Other devices do not depend on oneDNN.
    assert precision(replace(LIMITED, precisions={"cuda": "bfloat16"}), "cuda") == "bfloat16"
    assert precision(LIMITED, "mps") == "float32"


@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_the_user_s_own_limit_stays_and_means_float32_unless_it_is_the_probe_s(torch_is, monkeypatch, name):
    monkeypatch.setenv(name, "AVX512_CORE")
    remember(LIMITED)
    prepare()
    assert list(os.environ.values()).count("AVX512_CORE") == 1
    assert "AVX2" not in os.environ.values()
    assert precision(LIMITED, "cpu") == precision(PLAIN, "cpu") == "float32"
    assert precision(replace(PLAIN, onednn_isa="AVX512_CORE"), "cpu") == "bfloat16"


def run_python(source, **environment):
    command, options = [sys.executable, "-c", source], {"capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(command, env=os.environ | environment, check=True, **options).stdout


PRINT_LIMIT = "; import os; print(os.environ.get('ONEDNN_MAX_CPU_ISA'))"
SURE = "from masil.hardware import precision, probe; print(precision(probe(), 'cpu'))"
FIRST_NETWORKS = {
    "a backbone": "from masil.backbones import create; create('resnet12', seed=0)",
    "a module that is tried on noise": "from masil.data import Framing; import torch; "
    "from masil.backbones import ModuleBackbone; ModuleBackbone(torch.nn.Conv2d(3, 4, 3), Framing(8, 8), "
    "non_negative='relu')",
    "a device": "from masil.hardware import resolve_device; resolve_device('cpu')",
    "the command line": "import sys; sys.argv = ['masil', 'undo', 'none.masil']; from masil.cli import main\n"
    "try: main()\nexcept SystemExit: pass\npass",
}


def test_to_import_masil_changes_no_variable_of_the_process_and_preparing_imports_nothing_heavy():
    remember(LIMITED)
    printed = run_python(
        "import os, torch; before = dict(os.environ); import masil.learner, masil.training, masil.cli\n"
        "print(dict(os.environ) == before)"
    )
    assert printed.strip() == "True"
    loaded = run_python("import sys, masil.hardware as h; h.prepare(); print(*sys.modules)").split()
    assert not {"torch", "numpy", "rich", "typer", "asyncio"} & set(loaded)


@pytest.mark.parametrize("first", FIRST_NETWORKS)
def test_the_limit_is_set_before_masil_s_first_network_runs(first):
    remember(LIMITED)
    assert run_python(FIRST_NETWORKS[first] + PRINT_LIMIT).strip() == "AVX2"


def test_on_the_command_line_and_in_a_child_that_inherits_it_the_limit_comes_before_torch_and_holds(monkeypatch):
    remember(LIMITED)
    assert run_python(f"{FIRST_NETWORKS['the command line']}; import torch; {SURE}").strip() == "bfloat16"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert run_python(f"import masil.training; {SURE}").strip() == "bfloat16"


@pytest.mark.skipif("avx512bw" not in cpu_flags(), reason="only where there is more than AVX2 can a limit be seen")
@pytest.mark.parametrize(("earlier", "limited"), [("", True), ("torch.conv2d(x, w)", False)])
def test_onednn_reads_its_limit_when_it_is_first_used_and_not_later(earlier, limited):
    """What the module's first lines claim, seen in what oneDNN itself prints."""
    remember(LIMITED)
    printed = run_python(
        "import torch; x, w = torch.rand(4, 16, 8, 8), torch.rand(16, 16, 3, 3)\n"
        f"{earlier}\nimport masil.hardware; masil.hardware.prepare(); torch.conv2d(x, w)",
        ONEDNN_VERBOSE="1",
    )
    said = next(line for line in printed.splitlines() if ",isa:" in line)
    assert said.endswith("isa:Intel AVX2") == limited


# Device, threads, times


@pytest.fixture
def cards(monkeypatch):
    """Give a function that lets torch find so many cards."""

    def pretend(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)

    return pretend


@pytest.mark.parametrize(
    ("count", "name", "device"),
    [
        (2, "cpu", "cpu"), (2, " CPU ", "cpu"), (2, "cuda", "cuda"), (2, "cuda:1", "cuda:1"), (2, "cuda:01", "cuda:1"),
        (2, "auto", "cuda"), (0, "auto", "cpu"),  # the card that was found has gone
    ],
)  # fmt: skip
def test_a_device_that_is_there_is_given(cards, count, name, device):
    cards(count)
    remember(replace(PLAIN, device="cuda", precisions={"cuda": "bfloat16", "cpu": "float32"}))
    assert resolve_device(name) == torch.device(device)


@pytest.mark.parametrize(
    ("count", "name", "sentence"),
    [
        (2, "cdua", "no device called 'cdua'; did you mean 'cuda'"),
        (2, "gpu", "no device called 'gpu'; did you mean 'cuda'"),
        (2, "gpu:0", "no device called 'gpu:0'; did you mean 'cuda'"),
        (2, "", "no device called ''; known are: auto, cpu, cuda, mps"),
        (2, "tensor", "known are: auto, cpu, cuda, mps"),
        (2, "cuda:", "no device called 'cuda:'"),
        (2, "cuda:first", "no device called 'cuda:first'"),
        (2, "cuda:-1", "no device called 'cuda:-1'"),
        (2, "cpu:1", "no device called 'cpu:1'"),
        (2, "auto:1", "no device called 'auto:1'"),
        (2, "cuda:2", "finds 2 of this kind, counted from 0: did you mean 'cuda:1'"),
        (0, "cuda", r"'cuda' was asked for, but torch .* finds none here; available: cpu\."),
        (0, "cuda:0", r"'cuda:0' was asked for, but torch .* finds none here; available: cpu\."),
        (0, "mps", r"'mps' was asked for, but torch .* finds none here; available: cpu\."),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_what_is(cards, count, name, sentence):
    cards(count)
    remember(PLAIN)
    with pytest.raises(DeviceError, match=sentence):
        resolve_device(name)


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_a_machine_on_which_torch_dies_is_refused(name):
    died = {"cpu float32 matrix product": "killed by SIGILL (illegal instruction)"}
    remember(replace(PLAIN, precisions={}, failures=died))
    with pytest.raises(DeviceError, match=r"not work on this machine: cpu float32 matrix product killed by SIGILL"):
        resolve_device(name)


def test_a_machine_that_needs_a_limit_for_float32_gets_it_unless_the_user_has_set_another(monkeypatch):
    remember(replace(LIMITED, measurements={}))
    assert resolve_device("cpu") == torch.device("cpu")
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
    with pytest.raises(DeviceError, match=r"only with ONEDNN_MAX_CPU_ISA=AVX2, but 'AVX512_CORE' is set\. Leave"):
        resolve_device("cpu")
    remember(LIMITED)  # here float32 survives without the limit, too
    assert resolve_device("cpu") == torch.device("cpu")


# Torch, imported in haste


@pytest.mark.parametrize("collects", [True, False])
def test_a_program_imports_torch_without_a_search_for_garbage_and_collects_as_before(collects):
    script = (
        "import gc, sys\n"
        "from masil.hardware import import_torch\n"
        f"collects = {collects}\n"
        "if not collects: gc.disable()\n"
        "searches = gc.get_stats()[0]['collections']\n"
        "import_torch()\n"
        "assert 'torch' in sys.modules\n"
        "assert gc.get_stats()[0]['collections'] == searches\n"
        "assert gc.get_freeze_count() > 10_000\n"
        "assert gc.isenabled() == collects\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_where_torch_is_there_already_nothing_is_set_aside(monkeypatch):
    monkeypatch.setattr("gc.freeze", lambda: pytest.fail("frozen"))
    import_torch()


def test_work_is_timed_in_turn_and_the_first_round_does_not_count(monkeypatch):
    clock, turns = [0.0], []

    def work(name, *seconds):
        seconds = iter(seconds)

        def run():
            turns.append(name)
            clock[0] += next(seconds)

        return run

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    pieces = {"slow": work("slow", 1, 7, 5), "fast": work("fast", 9, 2, 3)}
    assert time_in_turn(pieces, torch.device("cpu"), rounds=2) == {"slow": 5, "fast": 2}
    assert turns == ["slow", "fast"] * 3


def test_the_best_time_leaves_out_the_first_run_unless_it_is_all_there_is(monkeypatch):
    for ticks, seconds in (([0.0, 0.01, 1.0, 1.08, 2.0, 2.09], 0.08), ([0.0, 9.0], 9.0)):
        clock = iter(ticks)
        monkeypatch.setattr("time.perf_counter", lambda clock=clock: next(clock))
        assert best_seconds(lambda: None, torch.device("cpu"), budget=0.15) == pytest.approx(seconds)
