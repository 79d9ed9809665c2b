"""A model as one safetensors file: tensors as they are, all else as JSON in its metadata. No pickle, nothing executed.

What the base session learnt comes once; then follow the sessions, each with its own tensors. The file is written beside
the old one and takes its name at once, so that a process killed at any moment leaves one or the other. A checksum over
everything tells a damaged file from a whole one.

Backbones: weights that came with pip are named, with a fingerprint that is compared on loading; weights of any other
backbone that masil can rebuild are inside, in full precision; a module of the user's own has to be given again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import torch
from torch import Tensor

from masil.backbones import Backbone, can_rebuild, create
from masil.collapse import Embedding, embedding_from_state
from masil.concepts import BankRecord, ConceptBank
from masil.errors import InputError, StorageError
from masil.learner.core import Base
from masil.learner.encoder import Encoder
from masil.learner.prior import PriorWeight
from masil.learner.rows import ROWS, ClassRows, Event, SessionRows
from masil.learner.unknown import UnknownDetector
from masil.storage import TensorFormat, locked, read_tensors, write_tensors

MODEL = TensorFormat("masil model", 1, "model", "Take it from a backup.")
PATIENCE = 60.0  # seconds to wait for another process
# Names in the file that the code has outgrown; files of every age have them.
IN_FILE = {name: "expected" if name == "own_scores" else name for name in ROWS}
_OBJECT, _INFINITE = "(in this file)", "inf"
T = TypeVar("T")


@final
@dataclass(frozen=True, eq=False)
class SavedModel:
    """All that a model file holds."""

    params: dict[str, Any]  # of `Masil`
    encoder: Encoder
    base: Base
    sessions: tuple[SessionRows, ...]
    log: tuple[Event, ...]


@contextmanager
def edit_model(path: str | Path, *, new: bool = False, patience: float | None = None) -> Iterator[Path]:
    """Lock a model file against other processes and threads, and yield the file itself, links followed.

    Load, change and save the model inside `with edit_model(path)`, so that two processes never overwrite each other's
    sessions. A process that dies releases the lock. With `new`, there need not be a model yet.
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


def write_model(path: Path, model: SavedModel) -> None:
    """Write a model to `path`, atomically."""
    _refuse_folder(path)
    base, tensors = model.base, dict[str, Tensor]()
    backbone = _describe_backbone(model.encoder, tensors)
    tensors |= {f"embedding.{name}": value for name, value in base.embedding.state().items()}
    tensors["bank.concepts"] = base.bank.concepts
    for position, session in enumerate(model.sessions):
        tensors |= {f"lesson.{position}.{IN_FILE[name]}": getattr(session.rows, name) for name in ROWS}
    if model.params["class_vectors"] is not None:
        tensors["params.class_vectors"] = model.params["class_vectors"]
    content = {
        "params": {name: _plain(value) for name, value in model.params.items()},
        "backbone": backbone,
        "base": {
            "power": base.power,
            "temperature": base.temperature,
            "framed": base.framed,
            "points": None if base.points is None else dict(base.points),
            "prior": None if base.prior is None else asdict(base.prior),
            "rejector": None if base.unknown_detector is None else asdict(base.unknown_detector),
            "embedding": {"form": base.embedding.form, "config": base.embedding.config()},
            "bank": asdict(base.bank.record),
        },
        "lessons": [
            {name: getattr(session, name) for name in ("number", "when", "who", "note")}
            | {"labels": session.rows.labels}
            for session in model.sessions
        ],
        "log": [asdict(event) for event in model.log],
    }
    write_tensors(path, MODEL, content, tensors)


def read_model(path: Path, device: str, backbone: Backbone | None) -> SavedModel:
    """Read what `write_model` wrote, or say in a sentence why it cannot be read."""
    content, tensors = read_tensors(path, MODEL)
    try:
        network = _rebuild_backbone(content["backbone"], tensors, backbone, path)
        base = _base(content["base"], tensors)
        sessions = tuple(_session(*entry, tensors) for entry in enumerate(content["lessons"]))
        log = tuple(Event(**event | {"images": tuple(map(tuple, event["images"]))}) for event in content["log"])
        params = content["params"] | {"device": device}
        vectors = tensors.get("params.class_vectors")
        objects = {"backbone": network, "embedding": base.embedding, "class_vectors": vectors}
        params |= {name: value for name, value in objects.items() if params[name] == _OBJECT}
        params["alpha"] = math.inf if params["alpha"] == _INFINITE else params["alpha"]
        if params.get("class_names") is not None:  # models before it have none
            params["class_names"] = tuple(params["class_names"])
        packaged = content["backbone"] is not None and content["backbone"]["weights"] == "imagenet"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise StorageError(f"The model {path} is damaged: a part of it is missing or wrong ({error}).") from error
    encoder = Encoder(network, device, packaged=packaged)
    encoder.features = base.features
    return SavedModel(params, encoder, base, sessions, log=log)


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise StorageError(f"{path} is a folder; a model is one file, for instance {path / 'model.masil'}.")


def _plain(value: Any) -> Any:
    """Give a parameter as JSON can hold it; backbones, embeddings and tensors are elsewhere in the file."""
    if isinstance(value, Backbone | Embedding | Tensor):
        return _OBJECT
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and math.isinf(value):
        return _INFINITE
    return value.item() if hasattr(value, "item") else value


def _session(position: int, described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> SessionRows:
    rows = {name: tensors[f"lesson.{position}.{IN_FILE[name]}"] for name in ROWS}
    base = torch.full(rows["counts"].shape, position == 0)
    plain = {name: described[name] for name in ("number", "when", "who", "note")}
    return SessionRows(**plain, rows=ClassRows(tuple(described["labels"]), **rows, base=base))


def _base(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Base:
    g, g_state = described["embedding"], _below("embedding.", tensors)
    return Base(
        power=described["power"],
        embedding=embedding_from_state(g["form"], g["config"], g_state).eval().requires_grad_(False),
        bank=ConceptBank(tensors["bank.concepts"], BankRecord(**described["bank"])),
        prior=_record(PriorWeight, described["prior"]),
        temperature=described["temperature"],
        framed=described["framed"],
        points=described.get("points"),  # models before it have none
        unknown_detector=_record(UnknownDetector, described.get("rejector")),  # nor this
    )


def _record(kind: type[T], described: Mapping[str, Any] | None) -> T | None:
    if described is None:
        return None
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in described.items()})


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _describe_backbone(encoder: Encoder, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    """Give what is written of the backbone, and add its weights to `tensors` where nothing else can bring them."""
    backbone = encoder.backbone
    if backbone is None:
        return None
    config = backbone.config()
    weights = "imagenet" if encoder.packaged else "inside" if can_rebuild(config["name"]) else "yours"
    if weights == "inside":
        tensors |= {f"backbone.{name}": value for name, value in backbone.state_dict().items()}
    return {"config": config, "fingerprint": backbone.fingerprint(), "weights": weights}


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
            backbone.load_state_dict(_below("backbone.", tensors))
    if backbone.fingerprint() != described["fingerprint"]:
        raise StorageError(
            f"The model {path} was trained with another backbone: its '{name}' has the fingerprint "
            f"{described['fingerprint'][:12]}…, this '{backbone.name}' {backbone.fingerprint()[:12]}…"
        )
    return backbone.eval()
