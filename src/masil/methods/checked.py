"""What every method may rely on and every caller is told: order, shapes and labels are checked here, once for all."""

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from masil.errors import InputError
from masil.methods.method import Geometry, Method, Queries, Samples, Task


@final
class Checked:
    """A method that refuses what does not fit: sessions out of order, other activations, answers that are no classes.

    A session that is refused changes nothing.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.known = 0  # classes taught so far; 0 before `fit`
        self.features = 0
        self.room: int | None = None  # for how many classes, where the method must know

    def fit(self, base: Samples, task: Task) -> None:
        """Take in the base session."""
        known = _count_new_classes(base, 0)
        room = task.protocol.classes if self.method.needs_total else None
        _check_room(room, known)
        self._check_images(base)
        self.method.check_task(task)
        self.method.fit(base, task)
        self.known, self.features, self.room = known, base.activations.shape[1], room

    def learn(self, shots: Samples) -> None:
        """Take in one session."""
        self._check_features(shots.activations)
        known = self.known + _count_new_classes(shots, self.known)
        _check_room(self.room, known)
        self._check_images(shots)
        self.method.learn(shots)
        self.known = known

    def predict(self, queries: Queries) -> Tensor:
        """Give a class for each query, int64 [n]."""
        self._check_features(queries.activations)
        self._check_images(queries)
        answer: Any = self.method.predict(queries)
        labels = _as_tensor(answer)
        if labels is None or labels.shape != (len(queries),) or labels.dtype.is_floating_point:
            given = f"{labels.dtype} of shape {list(labels.shape)}" if labels is not None else _described(answer)
            raise InputError(
                f"`predict` of '{self.method.name}' gave {given}; it must give a whole number for each of the "
                f"{len(queries)} queries, the class among 0 … {self.known - 1}."
            )
        return labels.to(torch.int64)

    def geometry(self, queries: Queries) -> Geometry | None:
        """Give unit embeddings and class vectors, where there are such."""
        self._check_features(queries.activations)
        return self.method.geometry(queries)

    def _check_features(self, activations: Tensor) -> None:
        if not self.known:
            raise InputError("Nothing has been taught yet; call `fit` with the base session first.")
        if activations.ndim != 2 or activations.shape[1] != self.features:
            raise InputError(
                f"The activations have the shape {list(activations.shape)}, but the base session had {self.features} "
                f"features; were they computed with the same backbone?"
            )

    def _check_images(self, queries: Queries) -> None:
        if self.method.sees == "images" and queries.images is None:
            raise InputError(
                f"'{self.method.name}' trains on images, on crops or on maps of them, but was given stored activations "
                "alone, of which there are none; give it a data set whose images can be read."
            )


def _as_tensor(answer: Any) -> Tensor | None:
    """Give numbers as a tensor, however they come; None for all else."""
    try:
        return torch.as_tensor(answer).cpu() if isinstance(answer, Tensor | np.ndarray | list) else None
    except (TypeError, ValueError):  # names of classes, say, or lists of different lengths
        return None


def _described(answer: Any) -> str:
    """Say of what kind an answer is that is no numbers: "list of str"."""
    first = next(iter(answer), None) if isinstance(answer, np.ndarray | list) else None
    return type(answer).__name__ + (f" of {type(first).__name__}" if first is not None else "")


def _count_new_classes(samples: Samples, known: int) -> int:
    """Count the classes of a session, which must be `known`, `known` + 1, … with at least one image each."""
    activations, labels = samples.activations, samples.labels
    if activations.ndim != 2 or labels.shape != activations.shape[:1] or not len(labels):
        raise InputError(
            f"A session needs activations [n d] and labels [n], n >= 1, "
            f"but they have the shapes {list(activations.shape)} and {list(labels.shape)}."
        )
    if int(labels.min()) < known:
        raise InputError(f"Class {int(labels.min())} has been taught before; {known} classes are known.")
    counts = torch.bincount(labels - known)
    if bool((counts == 0).any()):
        missing = known + int((counts == 0).nonzero()[0])
        raise InputError(f"The next class is {missing}, but there is no image of it; classes come in order.")
    return len(counts)


def _check_room(room: int | None, known: int) -> None:
    if room is not None and known > room:
        raise InputError(
            f"There is room for {room} classes in all, but there are {known} now; the protocol must count them all."
        )
