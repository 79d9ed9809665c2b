"""A learner that teaches, undoes and saves without end, to be killed: teach_forever.py MODEL."""

import sys
from pathlib import Path

import torch

from masil.learner import Masil


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


path = Path(sys.argv[1])
model = Masil.load(path, device="cpu")
generator = torch.Generator().manual_seed(0)
while True:
    k = len(model.session_rows_)
    if k > 6:
        model.undo()
    else:
        model.learn(torch.rand(2, model.base_.features, generator=generator), [f"new {k}"] * 2)
    say("saving")
    model.save(path)
    say("saved")
