"""Data to choose hyper-parameters on: base *training* data that plays the test set, or the novel classes.

Nothing here can reach a test image: what these functions return is made of training images alone.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from masil.data import Dataset, Images
from masil.errors import InputError
from masil.protocol.protocol import Protocol
from masil.protocol.sessions import by_class


def held_out(images: Images, share: float, seed: int) -> tuple[Images, Images]:
    """Split images into a kept and a held-out part, `share` of every class (at least one, never all)."""
    if not 0 < share < 1:
        raise InputError(f"The held-out share is {share}; it must lie between 0 and 1.")
    kept, held = _split(images.labels, share, seed)
    return images.subset(kept), images.subset(held)


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
    if not 0 < share < 1:
        raise InputError(f"The held-out share is {share}; it must lie between 0 and 1.")
    shuffled = np.random.default_rng([seed, 1]).permutation(base).tolist()
    order = (*sorted(shuffled[novel:]), *shuffled[:novel])

    of_base = torch.isin(dataset.train.labels, torch.tensor(base)).nonzero().flatten()
    kept, held = _split(dataset.train.labels[of_base], share, seed)
    played = Dataset(
        name=f"{dataset.name} (pseudo-novel {seed})",
        classes=dataset.classes,
        train=dataset.train.subset(of_base[kept]),
        test=dataset.train.subset(of_base[held]),
    )
    shape = replace(
        protocol,
        name=f"{protocol.name}-pseudo-{seed}",
        base_classes=len(base) - novel,
        sessions=sessions,
        way=way,
        order=order,
    )
    return shape, played


def _split(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions kept and held out, class by class; a class of one image keeps it."""
    if len(labels) == 0:
        raise InputError("There are no images to hold a part of out.")
    kept, held = [], []
    for label, positions in enumerate(by_class(labels, int(labels.max()) + 1)):
        size = len(positions)
        away = min(max(1, round(share * size)), size - 1) if size > 1 else 0
        shuffled = torch.from_numpy(np.random.default_rng([seed, 2, label]).permutation(size))
        held.append(positions[shuffled[:away].sort().values])
        kept.append(positions[shuffled[away:].sort().values])
    return torch.cat(kept).sort().values, torch.cat(held).sort().values
