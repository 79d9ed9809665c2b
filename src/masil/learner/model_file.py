"""A model as one safetensors file: tensors as they are, all else as JSON in its metadata. No pickle, nothing executed.

What the base session learnt comes once; then follow the sessions, each with its own tensors, as a log to which `learn`
appends. The file is written beside the old one and takes its name at once, so that a process killed at any moment
leaves one or the other. A checksum over everything tells a damaged file from a whole one.

Backbones: weights that came with pip are named, with a fingerprint that is compared on loading; weights of any other
backbone that masil can rebuild are inside, in full precision; a module of the user's own is handed over again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from masil.backbones import Backbone, can_rebuild, create
from masil.collapse import Embedding, embedding_from_state
from masil.concepts import BankRecord, ConceptBank
from masil.errors import InputError, StorageError
from masil.files import locked, write_bytes
from masil.learner.base import Base
from masil.learner.encoder import Encoder
from masil.learner.memory import ROWS, Event, Lesson
from masil.learner.prior import PriorWeight
from masil.learner.unknown import Rejector

if TYPE_CHECKING:
    from masil.learner.masil import Masil

KIND, FORMAT = "masil model", 1
PATIENCE = 60.0  # seconds to wait for another process


@contextmanager
def editing(path: str | Path, *, new: bool = False, patience: float | None = None) -> Iterator[Path]:
    """Hold the model at `path` against other processes and threads, and yield the file itself, links followed.

    Load the model inside, change it, save it: what others taught before is then in it. A process that dies lets go.
    With `new`, there need not be a model yet.
    """
    path = Path(path)
    _refuse_folder(path)
    model = path.resolve()
    if not new and not model.exists():
        raise StorageError(f"There is no model at {path}.")
    lock = model.with_name(f".{model.name}.lock")
    with locked(lock, target=model, patience=PATIENCE if patience is None else patience):
        try:
            yield model
        finally:
            with suppress(OSError):  # where an open file cannot be removed, it stays, and does no harm
                lock.unlink()


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise StorageError(f"{path} is a folder; a model is one file, for instance {path / 'model.masil'}.")


def write_model(model: Masil, path: Path) -> None:
    """Write everything `model` has learnt to `path`, atomically."""
    _refuse_folder(path)
    base, tensors = model.base_, dict[str, Tensor]()
    backbone = _describe_backbone(model, tensors)
    tensors |= {f"embedding.{name}": value for name, value in base.embedding.state().items()}
    tensors["bank.concepts"] = base.bank.concepts
    for place, lesson in enumerate(model.lessons_):
        tensors |= {f"lesson.{place}.{name}": getattr(lesson, name) for name in ROWS}
    if model.class_vectors is not None:
        tensors["params.class_vectors"] = model.class_vectors
    content = {
        "params": {name: _plain(value) for name, value in model.get_params().items()},
        "backbone": backbone,
        "base": {
            "power": base.power,
            "temperature": base.temperature,
            "framed": base.framed,
            "prior": None if base.prior is None else asdict(base.prior),
            "rejector": None if base.rejector is None else asdict(base.rejector),
            "embedding": {"form": base.embedding.form, "config": base.embedding.config()},
            "bank": asdict(base.bank.record),
        },
        "lessons": [
            {"number": each.number, "when": each.when, "who": each.who, "note": each.note, "labels": each.labels}
            for each in model.lessons_
        ],
        "log": [asdict(event) for event in model.log_],
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    # Cloned: a file holds every tensor by itself, even where two are the same in memory.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    marks = {"kind": KIND, "format": str(FORMAT), "content": text, "checksum": _checksum(text, tensors)}
    write_bytes(path, save(tensors, metadata=marks))


def read_model(model: Masil, path: Path, device: str, backbone: Backbone | None) -> None:
    """Put what `write_model` wrote into a new `model`, or say in a sentence why it cannot be read."""
    content, tensors = _read(path)
    try:
        eyes = _rebuild_backbone(content["backbone"], tensors, backbone, path)
        base = _base(content["base"], tensors)
        lessons = tuple(
            Lesson(**each | {"labels": tuple(each["labels"])} | {row: tensors[f"lesson.{at}.{row}"] for row in ROWS})
            for at, each in enumerate(content["lessons"])
        )
        log = tuple(Event(**each | {"images": _pairs(each["images"])}) for each in content["log"])
        params = dict(content["params"])
        objects = {"backbone": eyes, "embedding": base.embedding, "class_vectors": tensors.get("params.class_vectors")}
        params |= {name: objects[name] for name in objects if params[name] == _OBJECT}
        params["alpha"] = math.inf if params["alpha"] == _INFINITE else params["alpha"]
        if params.get("class_names") is not None:  # models before it have none
            params["class_names"] = tuple(params["class_names"])
        model.set_params(**{**params, "device": device})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise StorageError(f"The model {path} is damaged: a part of it is missing or wrong ({error}).") from error
    packaged = content["backbone"] is not None and content["backbone"]["weights"] == "imagenet"
    encoder = Encoder(eyes, device, packaged=packaged)
    encoder.features = base.features
    model.restore(encoder, base, lessons, log)


_OBJECT, _INFINITE = "(in this file)", "inf"


def _plain(value: Any) -> Any:
    """Give a parameter as JSON can hold it; backbones, embeddings and tensors are elsewhere in the file."""
    if isinstance(value, Backbone | Embedding | Tensor):
        return _OBJECT
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and math.isinf(value):
        return _INFINITE
    return value.item() if hasattr(value, "item") else value


def _pairs(images: list[list[Any]]) -> tuple[tuple[Any, int], ...]:
    return tuple((label, count) for label, count in images)


def _base(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Base:
    prior, g = described["prior"], described["embedding"]
    rejector = described.get("rejector")  # models before it have none
    state = {name.removeprefix("embedding."): value for name, value in tensors.items() if name.startswith("embedding.")}
    return Base(
        power=described["power"],
        embedding=embedding_from_state(g["form"], g["config"], state).eval().requires_grad_(False),
        bank=ConceptBank(tensors["bank.concepts"], BankRecord(**described["bank"])),
        prior=None if prior is None else PriorWeight(tuple(prior["shots"]), tuple(prior["weights"])),
        temperature=described["temperature"],
        framed=described["framed"],
        rejector=None if rejector is None else Rejector(**rejector | {"weights": tuple(rejector["weights"])}),
    )


def _describe_backbone(model: Masil, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    backbone = model.encoder_.backbone
    if backbone is None:
        return None
    config = backbone.config()
    described = {"config": config, "fingerprint": backbone.fingerprint()}
    if model.encoder_.packaged:
        return {**described, "weights": "imagenet"}
    if not can_rebuild(config["name"]):
        return {**described, "weights": "yours"}
    tensors |= {f"backbone.{name}": value for name, value in backbone.state_dict().items()}
    return {**described, "weights": "inside"}


def _rebuild_backbone(
    described: Mapping[str, Any] | None, tensors: Mapping[str, Tensor], given: Backbone | None, path: Path
) -> Backbone | None:
    if described is None:
        if given is not None:
            raise InputError(f"The model {path} takes activations and has no backbone, but one was given.")
        return None
    backbone, weights, name = given, described["weights"], described["config"]["name"]
    if backbone is None and weights == "yours":
        raise InputError(
            f"The model {path} sees through '{name}', a module of your own, which no file can rebuild; "
            "make it again and hand it over: Masil.load(path, backbone=…)."
        )
    if backbone is None:
        backbone = create(**described["config"], weights="imagenet" if weights == "imagenet" else None)
        if weights == "inside":
            prefix = "backbone."
            backbone.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    if backbone.fingerprint() != described["fingerprint"]:
        raise StorageError(
            f"The model {path} was trained with another backbone: its '{name}' has the fingerprint "
            f"{described['fingerprint'][:12]}…, this '{backbone.name}' {backbone.fingerprint()[:12]}…"
        )
    return backbone.eval()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise StorageError(f"There is no model at {path}.") from error
    except OSError as error:
        raise StorageError(f"The model {path} cannot be read ({error.strerror}).") from error
    try:
        tensors = load(raw)
        marks = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")]).get("__metadata__", {})
    except (SafetensorError, ValueError) as error:
        raise StorageError(f"{path} is damaged or not a model ({error}).") from error
    if marks.get("kind") != KIND:
        raise StorageError(f"{path} is a safetensors file but not a masil model.")
    if (version := marks.get("format", "?")) != str(FORMAT):
        raise StorageError(
            f"The model {path} has format {version}, but this version of masil reads format {FORMAT}; update masil."
        )
    if marks.get("checksum") != _checksum(marks.get("content", ""), tensors):
        raise StorageError(f"The model {path} is damaged: its checksum is wrong. Take it from a backup.")
    return json.loads(marks["content"]), tensors


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    state = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        state.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        state.update(value.numpy().tobytes())
    return state.hexdigest()
