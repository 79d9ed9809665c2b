"""Does a model notice what it was never taught? python benchmarks/unknown.py

CUB-200, session by session: known are the test images of every class taught so far, unknown those of the classes that
are still to come. Printed are the AUROC of P(known) and of rivals, and at the model's own threshold the share of either
that is called unknown, with the accuracy on known images that were called unknown and on those that were not. Nothing
is chosen here: the learner has fitted P(known) on its base classes.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from masil.backbones import ActivationStore, create
from masil.data import load
from masil.learner import Masil, auroc
from masil.protocol import PROTOCOLS, sessions
from masil.storage import write_json


def rivals(model: Masil, activations: Tensor) -> dict[str, Tensor]:
    """Give scores [n] that are high for what was taught, from the literature."""
    base, memory = model.base_, model.memory_
    x = base.take_power(activations)
    with torch.no_grad():
        g = base.embedding.transform(x)
        cosines = torch.nn.functional.normalize(g) @ memory.vectors.T
        rest = (x - base.bank.reconstruct(x)).norm(dim=1) / x.norm(dim=1)
    logits = base.temperature * cosines
    return {
        "largest cosine": cosines.max(1).values,
        "largest probability": torch.softmax(logits, 1).max(1).values,
        "energy": torch.logsumexp(logits, 1),
        "largest logit, length kept": cosines.max(1).values * g.norm(dim=1),
        "distance to class mean": -torch.cdist(torch.nn.functional.normalize(g), memory.means).min(1).values,
        "reconstruction error": -rest,
    }


def judge(model: Masil, activations: Tensor, labels: Tensor) -> dict[str, Any]:
    answers = model.answer(activations)
    assert answers.known is not None
    known = torch.isin(labels, torch.tensor([int(label) for label in model.memory_.labels]))
    named = torch.tensor([int(label) for label in model.memory_.labels])[answers.probabilities.argmax(1)]
    right, rejected = (named == labels).double(), answers.rejected()
    scores = {"P(known)": answers.known, **rivals(model, activations)}
    return {
        "auroc": {name: auroc(score[known], score[~known]) for name, score in scores.items()},
        "unknown_called_unknown": float(rejected[~known].double().mean()),
        "known_called_unknown": float(rejected[known].double().mean()),
        "accuracy_called_unknown": float(right[known & rejected].mean()),
        "accuracy_answered": float(right[known & ~rejected].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all figures to this file, too")
    chosen = parser.parse_args()
    protocol, store = PROTOCOLS["cub200"], ActivationStore()
    backbone = create("efficientnet_lite0", weights="imagenet")
    stream = list(sessions(protocol, load("cub200")))
    starts = [0, *(len(session.test) for session in stream)]
    tests = [one.test.subset(slice(start, None)) for one, start in zip(stream, starts, strict=False)]
    asked = torch.cat([store.get(backbone, test) for test in tests])
    labels = torch.cat([test.labels for test in tests])
    model, found = Masil(backbone=None), []
    for session in stream[:-1]:  # after the last, no class is left that was never taught
        shots = store.get(backbone, session.train)
        (model.fit if session.number == 0 else model.learn)(shots, session.train.labels.tolist())
        found.append({"session": session.number, **judge(model, asked, labels)})
        one = found[-1]
        print(
            f"session {one['session']}: AUROC {one['auroc']['P(known)']:.3f}; called unknown: never taught "
            f"{one['unknown_called_unknown']:.0%}, taught {one['known_called_unknown']:.0%} (of which "
            f"{one['accuracy_called_unknown']:.0%} would have been right, of the others {one['accuracy_answered']:.0%})"
        )
    for name in found[0]["auroc"]:
        print(f"{name:28} mean AUROC {sum(one['auroc'][name] for one in found) / len(found):.3f}")
    if chosen.json:
        write_json(chosen.json, {"protocol": "cub200", "backbone": backbone.name, "sessions": found})


if __name__ == "__main__":
    main()
