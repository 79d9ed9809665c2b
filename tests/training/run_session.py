"""A base session in a process of its own, to be killed or one of several: run_session.py SOURCE FOLDER [EVERY [HOLD]].

After HOLD checkpoints it goes no further, so that it is killed on its way however late the signal comes.
"""

import itertools
import json
import logging
import sys
import time
from pathlib import Path

import numpy as np
import torch

from masil.data import array_images
from masil.training import Recipe, TrainOptions, train
from masil.training.session import TrainingRun

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
every, hold = (int(number) for number in [*sys.argv[3:], "0", "0"][:2])
saves = itertools.count(1)


def save(session, keep=TrainingRun.save):
    keep(session)
    while next(saves) == hold:
        time.sleep(600)


TrainingRun.save = save  # type: ignore[method-assign]
logging.basicConfig(level=logging.INFO)
images = array_images(np.load(source / "pixels.npy"), torch.from_numpy(np.load(source / "labels.npy")))
recipe = Recipe.from_json(json.loads((source / "recipe.json").read_text()))
train(images, recipe, folder, device="cpu", options=TrainOptions(precision="float32", checkpoint_steps=every))
