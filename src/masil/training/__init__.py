"""The base session: recipes, losses, a trainer that makes the most of two cores, checkpoints that survive anything."""

from masil.training.loss import (
    LOSSES,
    BaseLoss,
    CosineLoss,
    FrameLoss,
    LeastSquaresLoss,
    contrast,
    make_loss,
    soft_labels,
)
from masil.training.maps import (
    LinearFeatures,
    balanced_batches,
    minimise_by_sgd,
    minimise_convex,
    shuffled_batches,
    train_map,
)
from masil.training.optimiser import Muon
from masil.training.recipe import Average, Mixing, Monitoring, MuonSettings, Recipe, Schedule, Sgd, Tuning
from masil.training.recipes import RECIPES, USUAL, recipe, usual_recipe
from masil.training.session import DivergedError
from masil.training.trained import Trained, compact, load_trained
from masil.training.trainer import TrainOptions, train
