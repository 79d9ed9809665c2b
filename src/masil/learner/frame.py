"""Which class each vector of a trained frame belongs to: found by name, never by the order that names sort in."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from masil.collapse import Embedding
from masil.data import natural
from masil.errors import InputError
from masil.learner.inputs import Label
from masil.learner.rows import unit

REMEDY = "Say which class each vector is of: `class_names`, in the order of `class_vectors`."


def read_vectors(
    vectors: Tensor | None, names: Sequence[Label] | None, embedding: str | Embedding, classes: Sequence[Label]
) -> tuple[Tensor | None, bool]:
    """Give the vectors [k d'] of the base classes, in the order of `classes`, and whether that order is certain.

    `names[i]` is the class of `vectors[i]`. A base session without names counts its classes: its names are 0 … k − 1.
    Classes that are strings cannot be found among these, and only their images can tell; see `by_images`.
    """
    if vectors is None:
        if names is not None:
            raise InputError("`class_names` are those of `class_vectors`, but no vectors were given.")
        return None, True
    if not isinstance(embedding, Embedding):
        raise InputError("Class vectors were given without the embedding that was trained to them.")
    rows = torch.as_tensor(vectors).detach().to("cpu", torch.float32)
    trained = list(_sorted(classes) if names is None else names)
    if names is not None and len(trained) != len(rows):
        raise InputError(f"There are {len(rows)} class vectors but {len(trained)} `class_names`. {REMEDY}")
    numbers = list(range(len(trained)))
    known = set(trained) == set(classes)
    if not known and list(classes) != numbers and trained != numbers:
        raise InputError(_unlike(trained, classes))
    if rows.shape != (len(classes), embedding.features_out):
        raise InputError(
            f"The class vectors have the shape {list(rows.shape)}, but {len(classes)} base classes with embeddings of "
            f"{embedding.features_out} features need [{len(classes)} {embedding.features_out}]."
        )
    if known:
        return rows[[trained.index(label) for label in classes]], True
    return rows, list(classes) == numbers  # label i is class i of the base session, whatever its name was there


@torch.no_grad()
def by_images(vectors: Tensor, embedding: Embedding, x: Tensor, codes: Tensor) -> Tensor:
    """Give the vectors [k d'] in the order of the classes, each to the class most of whose images are nearest to it.

    That is certain only where it is so for every vector; otherwise it is refused.
    """
    k = len(vectors)
    nearest = (embedding(x) @ unit(vectors).T).argmax(1)
    votes = torch.bincount(codes * k + nearest, minlength=k * k).reshape(k, k)  # [class, vector]
    most, rows = votes.max(1)
    if len(set(rows.tolist())) < k or bool((2 * most <= votes.sum(1)).any()):
        raise InputError(
            f"The {k} class vectors come from a base session that kept no names of its classes, and these images do "
            f"not show beyond doubt which vector is whose. Label them 0 … {k - 1} as in training, give `class_names` "
            "in their order of training, or have the base session trained again in its folder, which adds the names."
        )
    return vectors[rows]


def _sorted(classes: Sequence[Label]) -> Sequence[Label]:
    """Give classes in the one order that names have by themselves, refusing those that people and machines sort apart.

    `classes` are sorted as machines do it: "class 10" before "class 2".
    """
    if any(isinstance(label, int) for label in classes):
        return classes
    for machine, people in zip(classes, sorted(map(str, classes), key=natural), strict=True):
        if machine != people:
            raise InputError(f"Is the first of two class vectors that of '{machine}' or of '{people}'? {REMEDY}")
    return classes


def _unlike(trained: Sequence[Label], classes: Sequence[Label]) -> str:
    """Say how the classes differ from those that the vectors were trained for."""
    missing = [label for label in trained if label not in classes]
    strange = [label for label in classes if label not in trained]
    facts = []
    if missing:
        facts.append(f"{_some(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if strange:
        facts.append(f"{_some(strange)} {'is' if len(strange) == 1 else 'are'} not among them")
    return (
        f"The checkpoint was trained on {len(trained)} classes, {_some(trained)}; {' and '.join(facts)}. Name the "
        "classes as they were named in training, or use its embedding without its class vectors: "
        "Masil.from_trained(trained, class_vectors=None)."
    )


def _some(labels: Sequence[Label]) -> str:
    """Name the first few: 'wren', 'owl', 'auk' and 29 more."""
    shown = ", ".join(repr(label) for label in labels[:3])
    return shown if len(labels) <= 3 else f"{shown} and {len(labels) - 3} more"
