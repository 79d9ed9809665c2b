"""A base session in a process of its own, to be killed or one of several: run_session.py SOURCE FOLDER [EVERY]."""

import json
import logging
import sys
from pathlib import Path

import numpy as np
import torch

from masil.data import ArrayImages
from masil.training import Recipe, train

source, folder, every = Path(sys.argv[1]), Path(sys.argv[2]), int([*sys.argv, "0"][3])
logging.basicConfig(level=logging.INFO)
images = ArrayImages(np.load(source / "pixels.npy"), torch.from_numpy(np.load(source / "labels.npy")))
recipe = Recipe.from_json(json.loads((source / "recipe.json").read_text()))
train(images, recipe, folder, device="cpu", precision="float32", checkpoint_steps=every)
