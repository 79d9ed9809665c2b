import os
import subprocess
import sys
import types
from dataclasses import replace

import pytest

from masil.hardware import Hardware, precision, prepare, process
from masil.hardware.answers import keep
from masil.hardware.machine import cpu_flags, key

PLAIN = Hardware("cpu", {"cpu": "bfloat16"}, None, 2, "torch", "2.13.0", key(), "2026-01-01T00:00:00+00:00")
LIMITED = replace(PLAIN, onednn_isa="AVX2")


@pytest.fixture
def torch_is(monkeypatch):
    """Give a function that lets torch seem imported, or not."""

    def pretend(imported):
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        if imported:
            monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))

    pretend(False)
    return pretend


def test_nothing_known_changes_nothing(torch_is):
    prepare()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_what_is_known_is_set_before_torch_and_then_holds(torch_is):
    keep(LIMITED)
    prepare()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    torch_is(True)
    assert precision(LIMITED, "cpu") == "bfloat16"


def test_an_answer_without_a_limit_holds_whenever_torch_came(torch_is):
    torch_is(True)
    keep(PLAIN)
    prepare()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ
    assert precision(PLAIN, "cpu") == "bfloat16"


def test_a_limit_that_comes_after_torch_means_float32(torch_is):
    torch_is(True)
    keep(LIMITED)
    prepare()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"  # it may still help, and it helps children
    assert precision(LIMITED, "cpu") == "float32"


def test_a_limit_found_after_torch_was_imported_means_float32(torch_is):
    prepare()
    torch_is(True)
    process.adopt(LIMITED)
    assert precision(LIMITED, "cpu") == "float32"


def test_a_limit_the_user_set_before_torch_holds_even_if_the_probe_comes_later(torch_is, monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    prepare()
    torch_is(True)
    process.adopt(LIMITED)
    assert precision(LIMITED, "cpu") == "bfloat16"


def test_a_limit_of_unknown_age_means_float32(torch_is, monkeypatch):
    torch_is(True)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    prepare()
    assert precision(LIMITED, "cpu") == "float32"


@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_the_user_s_own_limit_stays_and_means_float32_unless_it_is_the_probe_s(torch_is, monkeypatch, name):
    monkeypatch.setenv(name, "AVX512_CORE")
    keep(LIMITED)
    prepare()
    assert [os.environ.get(each) for each in process.ISA_VARIABLES].count("AVX512_CORE") == 1
    assert "AVX2" not in os.environ.values()
    assert precision(LIMITED, "cpu") == precision(PLAIN, "cpu") == "float32"
    assert precision(replace(PLAIN, onednn_isa="AVX512_CORE"), "cpu") == "bfloat16"


def test_other_devices_do_not_depend_on_onednn(torch_is):
    torch_is(True)
    assert precision(replace(LIMITED, precisions={"cuda": "bfloat16"}), "cuda") == "bfloat16"
    assert precision(LIMITED, "mps") == "float32"


def test_a_trial_s_environment_is_left_alone(torch_is, monkeypatch):
    keep(LIMITED)
    monkeypatch.setenv("MASIL_TRIAL", "1")
    prepare()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_prepare_never_raises(torch_is, monkeypatch):
    def broken():
        raise RuntimeError("no home folder")

    monkeypatch.setattr(process, "known", broken)
    prepare()


def run_python(source, **environment):
    finished = subprocess.run(
        [sys.executable, "-c", source],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return finished.stdout


PRINT_LIMIT = "; import os; print(os.environ.get('ONEDNN_MAX_CPU_ISA'))"
FRAMING = "from masil.data import Framing; import torch; "
FIRST_NETWORKS = {
    "a backbone": "from masil.backbones import create; create('resnet12', seed=0)",
    "a module that is tried on noise": FRAMING
    + "from masil.backbones import ModuleBackbone; ModuleBackbone(torch.nn.Conv2d(3, 4, 3), Framing(8, 8), "
    "non_negative='relu')",
    "a device": "from masil.hardware import resolve_device; resolve_device('cpu')",
    "the command line": "import sys; sys.argv = ['masil', 'undo', 'none.masil']; from masil.cli import main\n"
    "try: main()\nexcept SystemExit: pass\npass",
}


def test_to_import_masil_changes_no_variable_of_the_process():
    keep(LIMITED)
    printed = run_python(
        "import os, torch; before = dict(os.environ); import masil.learner, masil.training, masil.cli\n"
        "print(dict(os.environ) == before)"
    )
    assert printed.strip() == "True"


@pytest.mark.parametrize("first", FIRST_NETWORKS)
def test_the_limit_is_set_before_masil_s_first_network_runs(first):
    keep(LIMITED)
    assert run_python(FIRST_NETWORKS[first] + PRINT_LIMIT).strip() == "AVX2"


def test_on_the_command_line_the_limit_comes_before_torch_and_surely_holds():
    keep(LIMITED)
    source = "; from masil.hardware import process; import torch; print(process._settings)"
    assert run_python(FIRST_NETWORKS["the command line"] + source).strip() == "{'AVX2'}"


def test_a_child_that_inherits_the_limit_knows_that_it_holds(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    source = "import masil.training; from masil.hardware import process; print(process._settings)"
    assert run_python(source).strip() == "{'AVX2'}"


def test_preparing_imports_nothing_heavy():
    keep(LIMITED)
    loaded = run_python("import sys, masil.hardware as h; h.prepare(); print(*sys.modules)").split()
    assert not {"torch", "numpy", "rich", "typer", "asyncio"} & set(loaded)


@pytest.mark.skipif("avx512bw" not in cpu_flags(), reason="only where there is more than AVX2 can a limit be seen")
@pytest.mark.parametrize(("earlier", "limited"), [("", True), ("torch.conv2d(x, w)", False)])
def test_onednn_reads_its_limit_when_it_is_first_used_and_not_later(earlier, limited):
    """What the module's first lines claim, seen in what oneDNN itself prints."""
    keep(replace(PLAIN, onednn_isa="AVX2"))
    printed = run_python(
        "import torch; x, w = torch.rand(4, 16, 8, 8), torch.rand(16, 16, 3, 3)\n"
        f"{earlier}\nimport masil.hardware; masil.hardware.prepare(); torch.conv2d(x, w)",
        ONEDNN_VERBOSE="1",
    )
    said = next(line for line in printed.splitlines() if ",isa:" in line)
    assert said.endswith("isa:Intel AVX2") == limited
