"""What the system says about this machine, read in a few milliseconds without torch. A probe tries if it is true."""

import hashlib
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import takewhile
from pathlib import Path

BUSY = 0.5  # from this load per core on, other work disturbs measurements
PROBE_VERSION = 3  # raised when the trials or the decisions change: older answers are then asked again


@cache
def machine_key() -> str:
    """Name this machine, its torch and this version of the probe: the same name, the same answer."""
    facts = (
        str(PROBE_VERSION), platform.system(), platform.machine(), platform.release(), cpu_model(), *cpu_flags(),
        str(usable_cores()), *gpu_names(), os.environ.get("CUDA_VISIBLE_DEVICES", "all"), torch_version(),
        torch_build(),
    )  # fmt: skip
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def cpu_model() -> str:
    """Give the processor's own name, or its architecture where it gives none."""
    named = filter(None, map(_cpuinfo().get, ("model name", "Processor", "Hardware")))
    # Windows keeps it in the environment; on macOS the architecture tells the generations apart well enough.
    return next(named, os.environ.get("PROCESSOR_IDENTIFIER") or platform.machine() or "unknown")


def cpu_flags() -> tuple[str, ...]:
    """Give the instruction sets the processor announces, in order; none where the system does not list them."""
    flags = _cpuinfo().get("flags") or _cpuinfo().get("Features") or ""
    return tuple(sorted(set(flags.split())))


def usable_cores() -> int:
    """Count the logical cores this process may use: all, less its affinity mask and its container's quota."""
    cores = os.cpu_count() or 1
    if sys.platform == "linux":
        cores = min(cores, len(os.sched_getaffinity(0)))
    quotas = [int(quota / period + 0.5) for quota, period in _cpu_quotas()]
    return max(1, min([cores, *quotas]))


def load() -> float:
    """Give how many threads wanted to run in the last minute, per usable core; 0 where the system does not say."""
    try:
        return os.getloadavg()[0] / usable_cores()
    except (AttributeError, OSError):  # no such thing on Windows
        return 0.0


def memory() -> int | None:
    """Give the bytes of memory this process may use: the machine's, or less if its container has a limit."""
    sizes = []
    with suppress(AttributeError, OSError, ValueError):  # no sysconf on Windows, no such names elsewhere
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is no number
            sizes.append(int(Path("/sys/fs/cgroup", file).read_text()))
    return min(sizes, default=None)


def gpu_names() -> list[str]:
    """Name the NVIDIA cards the driver lists (Linux), without starting CUDA."""
    names = []
    with suppress(OSError):
        for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
            model = re.search(r"^Model:\s*(.+)$", file.read_text(errors="replace"), re.MULTILINE)
            names.append(model[1].strip() if model else "unknown")
    return names


def torch_version() -> str:
    """Give torch's version from its files: importing it takes a second and may fix oneDNN's instruction set."""
    return _torch_fact("__version__") or "missing"


def torch_build() -> str:
    """Say what torch was built for, from its files: "CPU", "CUDA 13.0", "ROCm 7.0". Its version alone may not say."""
    if torch_version() == "missing":
        return "missing"
    for name, platform_name in (("cuda", "CUDA"), ("hip", "ROCm"), ("xpu", "XPU")):
        if version := _torch_fact(name):
            return f"{platform_name} {version}"
    return "CPU"


def _torch_fact(name: str) -> str | None:
    """Read a text that torch's version.py assigns; None where there is none, or no torch."""
    with suppress(ImportError, OSError, ValueError):
        spec = importlib.util.find_spec("torch")
        for folder in (spec and spec.submodule_search_locations) or ():
            text = Path(folder, "version.py").read_text(encoding="utf-8")
            if value := re.search(rf"^{name}\s*(?::[^=]*)?=\s*['\"](.+?)['\"]", text, re.MULTILINE):
                return value[1]
    return None


@cache
def _cpuinfo() -> dict[str, str]:
    """Read the first processor's entry of /proc/cpuinfo; the others, hundreds on big machines, say the same."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        first = (line.partition(":") for line in takewhile(str.strip, lines))
        return {field.strip(): value.strip() for field, _, value in first}
    return {}


def _cpu_quotas() -> Iterator[tuple[int, int]]:
    """Yield microseconds of processor time per period, for each control group limit in force (versions 2 and 1)."""
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # no such file, or "max": no limit
            quota, period = " ".join(Path("/sys/fs/cgroup", file).read_text() for file in files).split()
            if int(quota) > 0:
                yield int(quota), int(period)
