"""The base session: recipes, losses, a trainer that makes the most of two cores, checkpoints that survive anything."""

from masil.training.loss import LOSSES, BaseLoss, CosineLoss, FrameLoss, make_loss, soft_labels
from masil.training.maps import LinearFeatures, minimise_by_sgd, minimise_convex, shuffled_batches, train_map
from masil.training.muon import Muon
from masil.training.recipe import Average, Mixing, MuonSettings, Recipe, Sgd, Tuning, Watch
from masil.training.recipes import RECIPES, USUAL, recipe, usual_recipe
from masil.training.schedule import Schedule
from masil.training.session import DivergedError
from masil.training.trained import Trained, compact, load_trained, save_weights
from masil.training.trainer import train
