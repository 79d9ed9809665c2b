"""The probe's answer: a plain value that is written to a file and read back."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, final

from masil.errors import InputError
from masil.hardware.machine import BUSY

# oneDNN's instruction sets from most to least, for machines that die of what they announce.
ISA_LADDER = ("AVX512_CORE_FP16", "AVX512_CORE", "AVX2")
PRECISIONS = ("float32", "bfloat16")
DEVICES = ("cpu", "cuda", "mps")
LOAD = "load per core before the trials"  # the name of a measurement
ENGINES = ("onnxruntime", "torch")


@final
@dataclass(frozen=True)
class Hardware:
    """What really works on this machine, and which of it is fastest."""

    device: str  # "cpu", "cuda" or "mps": the fastest that survived
    precisions: Mapping[str, str]  # the fastest that trains rightly, per device; a device that failed is not in it
    onednn_isa: str | None  # ONEDNN_MAX_CPU_ISA under which the processor survives; None = leave alone
    threads: int
    engine: str  # "onnxruntime" or "torch": the faster one for frozen networks
    torch: str
    key: str
    when: str  # ISO 8601, UTC
    settled: bool = True  # False: not even float32 could be tried to its end, so it is assumed and will be tried again
    compile: bool | None = None  # torch.compile works and pays; None = not tried yet
    measurements: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)  # what was tried -> how it ended

    @property
    def precision(self) -> str:
        """The fastest precision that trains rightly on `device`."""
        return self.precisions.get(self.device, "float32")

    @property
    def disturbed(self) -> bool:
        """Whether other work went on during the trials, so that they measured on one thread."""
        return self.measurements.get(LOAD, 0.0) > BUSY

    def to_json(self) -> dict[str, Any]:
        """Give plain values; `from_json` gives an equal `Hardware` back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> "Hardware":
        """Check and read what `to_json` gave; a file that was damaged or made by hand raises InputError."""
        names = [entry.name for entry in fields(cls)]
        if not isinstance(value, dict) or set(value) != set(names):
            raise InputError(f"A hardware answer has the fields {', '.join(names)}, but this one is {_short(value)}.")
        for name, right in (
            ("device", value["device"] in DEVICES),
            ("precisions", _entries(value["precisions"], str) and _known_precisions(value["precisions"])),
            ("onednn_isa", value["onednn_isa"] in (None, *ISA_LADDER)),
            ("threads", type(value["threads"]) is int and value["threads"] >= 1),
            ("engine", value["engine"] in ENGINES),
            ("settled", isinstance(value["settled"], bool)),
            ("compile", value["compile"] is None or isinstance(value["compile"], bool)),
            ("measurements", _entries(value["measurements"], int | float)),
            ("failures", _entries(value["failures"], str)),
            *((name, isinstance(value[name], str)) for name in ("torch", "key", "when")),
        ):
            if not right:
                raise InputError(f"A hardware answer's {name} cannot be {_short(value[name])}.")
        return cls(**value)


def _entries(value: Any, kind: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(entry, kind) for entry in value.values())


def _known_precisions(value: Mapping[str, str]) -> bool:
    return set(value) <= set(DEVICES) and set(value.values()) <= set(PRECISIONS)


def _short(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."
