import os
import sys
import types
from pathlib import Path

import pytest
import torch

from masil.hardware import machine, machine_key

CPUINFO = """processor\t: 0
model name\t: Genuine Processor @ 2.80GHz
flags\t\t: sse2 avx2 amx_tile
\nprocessor\t: 1
model name\t: Another
flags\t\t: sse2
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Answer reads of /proc and /sys from a folder of the test's own."""

    class Rooted(type(tmp_path)):
        def __new__(cls, *parts):
            path = Path(*parts)
            return Path(tmp_path, *path.parts[1:]) if path.parts[:2] in (("/", "proc"), ("/", "sys")) else path

    def forget():
        machine._cpuinfo.cache_clear()
        machine.machine_key.cache_clear()

    def write(name, content):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        forget()

    monkeypatch.setattr(machine, "Path", Rooted)
    forget()
    yield write
    forget()


def test_model_and_flags_are_those_of_the_first_processor_or_of_the_environment(files, monkeypatch):
    monkeypatch.setenv("PROCESSOR_IDENTIFIER", "Intel64 Family 6")
    assert machine.cpu_model() == "Intel64 Family 6"
    assert machine.cpu_flags() == ()
    files("proc/cpuinfo", CPUINFO)
    assert machine.cpu_model() == "Genuine Processor @ 2.80GHz"
    assert machine.cpu_flags() == ("amx_tile", "avx2", "sse2")


@pytest.mark.parametrize(
    ("written", "affinity", "cores"),
    [
        ({}, 16, 16),
        ({}, 2, 2),
        ({"cpu.max": "max 100000"}, 16, 16),
        ({"cpu.max": "200000 100000"}, 16, 2),
        ({"cpu.max": "50000 100000"}, 16, 1),
        ({"cpu.max": "garbage"}, 16, 16),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 16, 16),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 16, 4),
    ],
)
def test_a_container_s_quota_and_an_affinity_mask_limit_the_cores(files, monkeypatch, written, affinity, cores):
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    for name, content in written.items():
        files(f"sys/fs/cgroup/{name}", content)
    assert machine.usable_cores() == cores


def test_the_load_is_per_core_and_none_where_the_system_does_not_say(monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 1.0, 1.0), raising=False)
    assert machine.load() == 1.5
    monkeypatch.delattr(os, "getloadavg")
    assert machine.load() == 0.0


def test_a_container_s_limit_is_the_memory(files):
    total = machine.memory()
    assert total is not None
    files("sys/fs/cgroup/memory.max", "max")
    assert machine.memory() == total
    files("sys/fs/cgroup/memory.max", "1000000")
    assert machine.memory() == 1_000_000


def test_cards_are_named_by_the_driver_s_files(files):
    assert machine.gpu_names() == []
    files("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA A100\nIRQ: 5\n")
    files("proc/driver/nvidia/gpus/0000:02:00.0/information", "")
    assert machine.gpu_names() == ["NVIDIA A100", "unknown"]


def test_torch_s_version_and_build_are_read_from_its_files(monkeypatch):
    assert machine.torch_version() == torch.__version__  # with "+cpu" or "+cu130", which pip's record may lack
    cuda, rocm = torch.version.cuda, torch.version.hip
    assert machine.torch_build() == (f"CUDA {cuda}" if cuda else f"ROCm {rocm}" if rocm else "CPU")
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda _: None)
    assert machine.torch_version() == machine.torch_build() == "missing"


@pytest.mark.parametrize(
    ("lines", "build"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = None", "CPU"),
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None", "CUDA 13.0"),
        ("cuda = '12.4'", "CUDA 12.4"),
        ("cuda = None\nhip = '7.0.2'\nrocm = '7.0'", "ROCm 7.0.2"),
        ("cuda = None\nxpu: Optional[str] = '20250101'", "XPU 20250101"),
    ],
)
def test_builds_of_one_version_are_told_apart(tmp_path, monkeypatch, lines, build):
    (tmp_path / "version.py").write_text(f"__version__ = '2.13.0'\n{lines}\n")
    spec = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda _: spec)
    assert (machine.torch_version(), machine.torch_build()) == ("2.13.0", build)


def test_the_key_changes_with_all_that_may_change_the_answer(files, monkeypatch):
    def fresh():
        machine.machine_key.cache_clear()
        return machine_key()

    files("proc/cpuinfo", CPUINFO)
    keys = [fresh()]
    assert fresh() == keys[0]
    files("proc/cpuinfo", CPUINFO.replace(" amx_tile", ""))
    keys.append(fresh())
    files("proc/driver/nvidia/gpus/0/information", "Model: NVIDIA A100\n")
    keys.append(fresh())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    keys.append(fresh())
    for name, value in (("usable_cores", 3), ("torch_version", "3.0"), ("torch_build", "CUDA")):
        monkeypatch.setattr(machine, name, lambda value=value: value)
        keys.append(fresh())
    monkeypatch.setattr(machine, "PROBE_VERSION", 999)
    keys.append(fresh())
    assert len(set(keys)) == len(keys) == 8
