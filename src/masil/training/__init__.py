"""The base session: recipes, a trainer that makes the most of two cores, checkpoints that survive anything."""

from masil.training.muon import Muon
from masil.training.recipe import Average, Mixing, MuonSettings, Objective, Recipe, Sgd, Tuning, Watch
from masil.training.recipes import RECIPES, USUAL, recipe, usual_recipe
from masil.training.schedule import Schedule
from masil.training.session import DivergedError
from masil.training.trained import Trained, compact, load_trained, save_weights
from masil.training.trainer import train
from masil.training.virtual import fusion_shares

__all__ = [
    "RECIPES",
    "USUAL",
    "Average",
    "DivergedError",
    "Mixing",
    "Muon",
    "MuonSettings",
    "Objective",
    "Recipe",
    "Schedule",
    "Sgd",
    "Trained",
    "Tuning",
    "Watch",
    "compact",
    "fusion_shares",
    "load_trained",
    "recipe",
    "save_weights",
    "train",
    "usual_recipe",
]
