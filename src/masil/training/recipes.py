"""Recipes by name: the paper's settings for each data set, and ours for two CPU cores."""

from dataclasses import replace
from pathlib import Path

from masil.data import Augmentation
from masil.errors import InputError, lookup
from masil.files import read_json
from masil.training.loss import CosineLoss, FrameLoss
from masil.training.recipe import Mixing, MuonSettings, Recipe, Sgd, Tuning, Watch
from masil.training.schedule import Schedule

# The paper's appendix gives epochs, learning rates, batch 512, SGDR and the kinds of augmentation; what it leaves open
# (warm-up, weight decay, strengths, mixing, frozen stem, size of the projection) is NC-FSCIL's, its nearest kin.
_PAPER_LOSS = FrameLoss().to_json()
_PAPER_SCHEDULE = Schedule(shape="cosine", warmup=0.05, final=0.01)
_PAPER_MIXING = Mixing(mixup=0.4, mixup_alpha=0.8, cutmix=0.4, cutmix_alpha=1.0)
_PAPER_AUGMENTATION = Augmentation(
    crop="resized", scale=(0.6, 1.0), flip=0.5, brightness=0.4, contrast=0.4, saturation=0.4
)  # fmt: skip
_FAST_AUGMENTATION = Augmentation(
    crop="pad", pad=4, flip=0.5, brightness=0.4, contrast=0.4, saturation=0.4, cutout=0.25, cutout_probability=0.5
)  # fmt: skip

# Gentle adaptation of a pretrained backbone: what is learnt must not cost what transfers to novel classes.
_GENTLE = Recipe(
    name="cub200-gentle",
    backbone="efficientnet_lite0",
    weights="imagenet",
    stages=((6, 160),),
    batch=32,
    sgd=Sgd(lr=0.03, weight_decay=1e-4),
    schedule=Schedule(shape="cosine", warmup=0.05),
    augmentation=Augmentation(crop="resized", scale=(0.5, 1.0), flip=0.5, brightness=0.2, contrast=0.2, saturation=0.2),
    loss=CosineLoss(start="means").to_json(),
    tuning=Tuning(
        frozen=("conv_stem", "bn0", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "blocks.4"),
        freeze_batch_norm=True,
        rates={"": 0.1},
    ),
    watch=Watch(nc_every=2, nc_images=5),
    compile=False,
)

# Two cores, 2.5 hours: see benchmarks/training.py for what an epoch costs at each size.
_CIFAR = Recipe(
    name="cifar100-fast",
    backbone="resnet18_cifar",
    stages=((18, 16), (9, 24), (5, 32)),
    sgd=Sgd(lr=0.1),
    muon=MuonSettings(lr=0.06),
    schedule=Schedule(shape="linear", warmup=0.05),
    augmentation=_FAST_AUGMENTATION,
    watch=Watch(nc_every=2),
)

RECIPES: dict[str, Recipe] = {
    "cifar100-paper": Recipe(
        name="cifar100-paper",
        backbone="resnet18_cifar",
        stages=((200, 32),),
        sgd=Sgd(lr=0.25, nesterov=False, decay_vectors=True),
        schedule=_PAPER_SCHEDULE,
        augmentation=_PAPER_AUGMENTATION,
        mixing=_PAPER_MIXING,
        loss=_PAPER_LOSS,
    ),
    "miniimagenet-paper": Recipe(
        name="miniimagenet-paper",
        backbone="resnet18",
        framing=(92, 84),
        stages=((500, 84),),
        sgd=Sgd(lr=0.25, nesterov=False, decay_vectors=True),
        schedule=_PAPER_SCHEDULE,
        augmentation=_PAPER_AUGMENTATION,
        mixing=_PAPER_MIXING,
        loss=_PAPER_LOSS,
    ),
    "cub200-paper": Recipe(
        name="cub200-paper",
        backbone="resnet18",
        weights="imagenet",
        stages=((80, 224),),
        sgd=Sgd(lr=0.025, nesterov=False, decay_vectors=True),
        schedule=_PAPER_SCHEDULE,
        augmentation=_PAPER_AUGMENTATION,
        loss=_PAPER_LOSS,
        tuning=Tuning(frozen=("conv1", "bn1", "layer1")),
    ),
    "cifar100-fast": _CIFAR,
    # Not yet measured to its end. Label smoothing was chosen on base classes that play novel, at half width.
    "cifar100-smooth": replace(
        _CIFAR, name="cifar100-smooth", stages=((20, 16), (8, 24), (3, 32)), loss=CosineLoss(smoothing=0.1).to_json()
    ),
    # Some ten minutes, where every method trains a backbone of its own and all get the same budget.
    "cifar100-short": replace(_CIFAR, name="cifar100-short", width=0.5, stages=((8, 16), (2, 32))),
    # Handwritten characters, 32 classes of some 30 images: under a minute, so that a first run shows something at once.
    "characters-fast": Recipe(
        name="characters-fast",
        backbone="resnet18_cifar",
        width=0.25,
        stages=((16, 16), (8, 32)),
        batch=64,
        sgd=Sgd(lr=0.1),
        muon=MuonSettings(lr=0.04),
        augmentation=Augmentation(crop="pad", pad=3, rotation=10.0, brightness=0.2, contrast=0.2),
        watch=Watch(nc_every=4),
        compile=False,
    ),
    # Not yet measured. As for CIFAR-100, at miniImageNet's own size and with the stem that ImageNet's ResNets have.
    "miniimagenet-fast": replace(
        _CIFAR,
        name="miniimagenet-fast",
        backbone="resnet18",
        framing=(84, 84),
        stages=((18, 42), (9, 56), (5, 84)),
        augmentation=replace(_FAST_AUGMENTATION, pad=10),
        loss=CosineLoss(smoothing=0.1).to_json(),
    ),
    "cub200-gentle": _GENTLE,
    "cub200-gentle-resnet18": replace(
        _GENTLE,
        name="cub200-gentle-resnet18",
        backbone="resnet18",
        tuning=replace(_GENTLE.tuning, frozen=("conv1", "bn1", "layer1", "layer2")),
    ),
}


# Of each data set the recipe that is used where none is named.
USUAL = {
    "characters": "characters-fast",
    "cifar100": "cifar100-fast",
    "cub200": "cub200-gentle",
    "miniimagenet": "miniimagenet-fast",
}


def usual_recipe(dataset: str) -> Recipe:
    """Give the recipe for a data set where none is named, or say that there is none."""
    if dataset not in USUAL:
        raise InputError(f"There is no recipe for '{dataset}'; name one of another data set: {', '.join(RECIPES)}.")
    return recipe(USUAL[dataset])


def recipe(name: str) -> Recipe:
    """Give the recipe called `name`, or that of a JSON file, or say which one was probably meant."""
    if name.endswith(".json"):
        return Recipe.from_json(read_json(Path(name)))
    return lookup("recipe", name, RECIPES)
