"""Every division of labels: what is learnt from, what is held out, and which classes play novel ones.

Hyper-parameters are chosen on base *training* data that plays the test set, or the novel classes: what these functions
return is made of the images they are given, and no test image can be among them. Each draws its random numbers in its
own order, which stays as it is, because figures depend on it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from masil.data import Dataset, Images
from masil.errors import DataError, InputError
from masil.protocol.protocol import Protocol

REHEARSALS = 2  # divisions of the base classes that are averaged
TESTS = 20  # images of a class that decide a rehearsal, at most


def by_class(labels: Tensor, classes: int) -> list[Tensor]:
    """Give for each class the positions that hold it, in order."""
    counts = torch.bincount(labels, minlength=classes)
    return list(torch.tensor_split(torch.argsort(labels, stable=True), counts.cumsum(0)[:-1].tolist()))


def place_in_class(labels: Tensor) -> Tensor:
    """Give the place of each image among those of its class: 0, 1, …"""
    places = torch.empty_like(labels)
    for positions in by_class(labels, 0):
        places[positions] = torch.arange(len(positions))
    return places


def first_of_each(labels: Tensor, count: int) -> Tensor:
    """Give the positions of the first `count` images of every class, in order."""
    return (place_in_class(labels) < count).nonzero().flatten()


def draw_shots(positions: Tensor, shot: int, draw: int, label: int) -> Tensor:
    """Choose `shot` of a class's images. The choice depends on the draw and the class alone, not on the protocol."""
    chosen = np.random.default_rng([draw, label]).permutation(len(positions))[:shot]
    return positions[torch.from_numpy(chosen).sort().values]


def some_of_each(
    labels: Tensor, count: Callable[[int], int], generator: torch.Generator, among: Tensor | None = None
) -> Tensor:
    """Choose count(n) of the n images of every class, at random, bool [n]; `among` bool [n] leaves the others out."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    eligible = torch.ones_like(chosen) if among is None else among
    for label in torch.unique(labels[eligible]).tolist():
        positions = (eligible & (labels == label)).nonzero()[:, 0]
        order = torch.randperm(len(positions), generator=generator)
        chosen[positions[order[: count(len(positions))]]] = True
    return chosen


def hold_out(labels: Tensor, seed: int) -> Tensor:
    """Choose a fifth of each class's images, at least one of three, none of fewer; bool [n]."""
    return some_of_each(labels, lambda n: max(1, n // 5) if n > 2 else 0, torch.Generator().manual_seed(seed))


def hold_out_count(labels: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Hold `count` images of each class 0, 1, … out; give the positions of the others and of these, in order."""
    order = torch.randperm(len(labels), generator=generator)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(int(labels.max()) + 1 if count else 0):
        positions = order[labels[order] == label]
        if len(positions) - count < 2:
            raise DataError(
                f"Class {label} has {len(positions)} images; with {count} held out fewer than 2 are left. "
                "Lower `holdout`."
            )
        held[positions[:count]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def class_folds(labels: Tensor, folds: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Divide the classes at random into `folds` parts of nearly one size, or as many as there are classes."""
    classes = torch.unique(labels)
    order = classes[torch.randperm(len(classes), generator=generator)]
    return tuple(torch.tensor_split(order, min(folds, len(order))))


@final
@dataclass(frozen=True, eq=False)
class Play:
    """One division of base data, all by position: to fit on, to teach from, to be judged by."""

    base: tuple[int, ...]
    novel: tuple[int, ...]
    fit: Tensor
    shots: Tensor
    test: Tensor


def divide(labels: Tensor, shots: int, novel: float, seed: int) -> Play:
    """Let a share of the classes play novel, and a fifth of each class's images, at least one, judge them all."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.unique(labels)
    order = classes[torch.randperm(len(classes), generator=generator)].tolist()
    playing = round(novel * len(order))
    if not 1 <= playing <= len(order) - 2:
        raise InputError(
            f"A share {novel} of {len(order)} classes is {playing} that play novel; at least 1 must, and 2 must not."
        )
    parts: dict[str, list[Tensor]] = {"fit": [], "shots": [], "test": []}
    for number, label in enumerate(order):
        positions = (labels == label).nonzero()[:, 0]
        positions = positions[torch.randperm(len(positions), generator=generator)]
        role, need = ("shots", shots) if number < playing else ("fit", 1)
        if len(positions) < need + 1:
            raise InputError(
                f"A class has {len(positions)} images, but to play it takes {need} to learn from and 1 to be judged "
                "by; add images, or lower `shots`."
            )
        tests = min(max(1, len(positions) // 5), len(positions) - need)
        parts["test"].append(positions[:tests])
        parts[role].append(positions[tests : tests + shots] if role == "shots" else positions[tests:])
    joined = {role: torch.cat(positions).sort().values for role, positions in parts.items()}
    return Play(tuple(sorted(order[playing:])), tuple(sorted(order[:playing])), **joined)


def rehearse(labels: Tensor, shots: int, novel: float, seed: int) -> Iterator[Play]:
    """Yield divisions in which about this share of the classes plays novel; none where classes or images are few."""
    counts = torch.bincount(labels)
    k = len(counts)
    playing = min(max(1, round(novel * k)), k - 2)
    if playing < 1 or int(counts.min()) < shots + 1:
        return
    for number in range(seed, seed + REHEARSALS):
        play = divide(labels, shots, playing / k, number)
        yield replace(play, test=play.test[first_of_each(labels[play.test], TESTS)])


def held_out(images: Images, share: float, seed: int) -> tuple[Images, Images]:
    """Split images into a kept and a held-out part, `share` of every class (at least one, never all)."""
    if not 0 < share < 1:
        raise InputError(f"The held-out share is {share}; it must lie between 0 and 1.")
    if len(images) == 0:
        raise InputError("There are no images to hold a part of out.")
    held = torch.zeros(len(images), dtype=torch.bool)
    for label, positions in enumerate(by_class(images.labels, 0)):
        size = len(positions)
        shuffled = torch.from_numpy(np.random.default_rng([seed, 2, label]).permutation(size))
        held[positions[shuffled[: min(max(1, round(share * size)), size - 1) if size > 1 else 0]]] = True
    return images.subset(~held), images.subset(held)


def pseudo_novel(
    protocol: Protocol, dataset: Dataset, *, sessions: int, way: int | None = None, share: float = 0.2, seed: int = 0
) -> tuple[Protocol, Dataset]:
    """Let `sessions` × `way` base classes, chosen by `seed`, play novel classes on base *training* data.

    The data set returned holds training images of base classes only: `share` of each class's images plays the test set,
    the rest is for training. Played with `masil.protocol.sessions` like any other protocol.
    """
    way = protocol.way if way is None else way
    base = list(protocol.order or range(protocol.classes))[: protocol.base_classes]
    novel = sessions * way
    if not 1 <= novel < len(base):
        raise InputError(
            f"{novel} pseudo-novel classes ({sessions} sessions × {way}) were asked for, but protocol "
            f"'{protocol.name}' has {len(base)} base classes; at least one must stay base and one become novel."
        )
    shuffled = np.random.default_rng([seed, 1]).permutation(base).tolist()
    order = (*sorted(shuffled[novel:]), *shuffled[:novel])

    of_base = dataset.train.subset(torch.isin(dataset.train.labels, torch.tensor(base)))
    kept, held = held_out(of_base, share, seed)
    played = Dataset(f"{dataset.name} (pseudo-novel {seed})", dataset.classes, train=kept, test=held)
    name, base_classes = f"{protocol.name}-pseudo-{seed}", len(base) - novel
    return replace(protocol, name=name, base_classes=base_classes, sessions=sessions, way=way, order=order), played
