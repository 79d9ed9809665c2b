"""Recipes by name: the paper's settings for each data set, and ours for two CPU cores."""

from dataclasses import replace
from pathlib import Path

from masil.data import Augmentation
from masil.errors import InputError, lookup
from masil.storage import read_json
from masil.training.loss import CosineLoss, FrameLoss
from masil.training.recipe import Mixing, Monitoring, MuonSettings, Recipe, Schedule, Sgd, Tuning

# The paper's appendix: epochs, learning rates, batch 512, SGDR with momentum, and the kinds of augmentation (random
# crop, flip, rotation, brightness, cutout, resizing, colour jitter). Open are weight decay, the strengths of the
# augmentation and the restarts: four cycles, each twice as long as the one before, the first 13 of 200 epochs.
_PAPER = Recipe(
    name="cifar100-paper",
    backbone="resnet18_cifar",
    stages=((200, 32),),
    sgd=Sgd(lr=0.25, nesterov=False, decay_vectors=True),
    schedule=Schedule(shape="cosine", warmup=0.0, cycles=4),
    augmentation=Augmentation(
        crop="resized", scale=(0.6, 1.0), flip=0.5, rotation=15.0, brightness=0.4, contrast=0.4, saturation=0.4,
        cutout=0.25, cutout_probability=0.5,
    ),
    loss=FrameLoss().to_json(),
)  # fmt: skip
_PAPER_MINI = replace(_PAPER, backbone="resnet18", framing=(84, 84), stages=((500, 84),))
_PAPER_CUB = replace(
    _PAPER, backbone="resnet18", weights="imagenet", stages=((80, 224),), sgd=replace(_PAPER.sgd, lr=0.025)
)
# The same loss and augmentation for less time, small images first: minutes at half width, or at most 2.5 hours, on two
# cores. Plain SGD learns next to nothing in so few epochs (docs/experiments.md), so Muon takes its place. CUB-200 keeps
# its width, at which the ImageNet weights are, and only its last two stages are trained.
_BRIEF = replace(_PAPER, sgd=Sgd(lr=0.1), muon=MuonSettings(lr=0.06), schedule=Schedule(shape="linear", warmup=0.05))
_BRIEF_MINI = replace(_BRIEF, backbone="resnet18", framing=(84, 84))
_BRIEF_CUB = replace(
    _PAPER_CUB,
    batch=32,
    sgd=Sgd(lr=0.03, weight_decay=1e-4),
    schedule=Schedule(shape="cosine", warmup=0.05),
    tuning=Tuning(frozen=("conv1", "bn1", "layer1", "layer2"), freeze_batch_norm=True, rates={"": 0.1}),
    watch=Monitoring(nc_every=2, nc_images=5),
    compile=False,
)
# What NC-FSCIL does, the paper's nearest kin: one cosine cycle, mixing, CUB-200 with a frozen stem.
_NC_FSCIL = replace(
    _PAPER,
    schedule=Schedule(shape="cosine", warmup=0.05, final=0.01),
    augmentation=Augmentation(crop="resized", scale=(0.6, 1.0), flip=0.5, brightness=0.4, contrast=0.4, saturation=0.4),
    mixing=Mixing(mixup=0.4, mixup_alpha=0.8, cutmix=0.4, cutmix_alpha=1.0),
)
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
    watch=Monitoring(nc_every=2, nc_images=5),
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
    augmentation=Augmentation(
        crop="pad", pad=4, flip=0.5, brightness=0.4, contrast=0.4, saturation=0.4, cutout=0.25, cutout_probability=0.5
    ),
    watch=Monitoring(nc_every=2),
)
_SMOOTH = CosineLoss(smoothing=0.1).to_json()
_MINI = replace(
    _CIFAR, backbone="resnet18", framing=(84, 84), stages=((18, 42), (8, 56), (4, 84)),
    augmentation=replace(_CIFAR.augmentation, pad=10), loss=_SMOOTH,
)  # fmt: skip

_PLANS = {
    "cifar100-paper": _PAPER,
    "miniimagenet-paper": _PAPER_MINI,
    "cub200-paper": _PAPER_CUB,
    "cifar100-paper-quick": replace(_BRIEF, width=0.5, stages=((8, 16), (2, 24))),
    "cifar100-paper-leg": replace(_BRIEF, stages=((20, 16), (8, 24), (3, 32))),
    "miniimagenet-paper-quick": replace(_BRIEF_MINI, width=0.5, stages=((8, 42), (1, 56))),
    "miniimagenet-paper-leg": replace(_BRIEF_MINI, stages=((16, 42), (8, 56), (3, 84))),
    "cub200-paper-quick": replace(_BRIEF_CUB, stages=((6, 112),)),
    "cub200-paper-leg": replace(_BRIEF_CUB, stages=((12, 160), (8, 224))),
    "characters-paper-quick": replace(
        _PAPER, width=0.25, stages=((16, 16), (8, 32)), batch=64, compile=False,
        augmentation=replace(_PAPER.augmentation, flip=0.0, saturation=0.0),
    ),
    "cifar100-nc-fscil": _NC_FSCIL,
    "miniimagenet-nc-fscil": replace(_NC_FSCIL, backbone="resnet18", framing=(92, 84), stages=((500, 84),)),
    "cub200-nc-fscil": replace(
        _PAPER_CUB, schedule=_NC_FSCIL.schedule, augmentation=_NC_FSCIL.augmentation,
        tuning=Tuning(frozen=("conv1", "bn1", "layer1")),
    ),
    "cifar100-fast": _CIFAR,
    # Two hours of one core. Label smoothing won at half width on base classes that play novel; at full width it did not
    # (docs/experiments.md).
    "cifar100-smooth": replace(_CIFAR, stages=((19, 16), (8, 24), (3, 32)), loss=_SMOOTH),
    # Some ten minutes, where every method trains a backbone of its own and all get the same budget.
    "cifar100-short": replace(_CIFAR, width=0.5, stages=((8, 16), (2, 32))),
    # Handwritten characters, 32 classes of some 30 images: under a minute, so that a first run shows something at once.
    "characters-fast": replace(
        _CIFAR, width=0.25, stages=((16, 16), (8, 32)), batch=64, muon=MuonSettings(lr=0.04),
        augmentation=Augmentation(crop="pad", pad=3, rotation=10.0, brightness=0.2, contrast=0.2),
        watch=Monitoring(nc_every=4), compile=False,
    ),
    # 50 minutes of one core (AMD EPYC, bfloat16). As for CIFAR-100, with the stem that ImageNet's ResNets have.
    "miniimagenet-fast": _MINI,
    "miniimagenet-short": replace(_MINI, width=0.5, stages=((8, 42), (2, 84))),
    "cub200-gentle": _GENTLE,
    "cub200-gentle-resnet18": replace(
        _GENTLE, backbone="resnet18", tuning=replace(_GENTLE.tuning, frozen=("conv1", "bn1", "layer1", "layer2"))
    ),
    # Two networks side by side, adapted as one: their activations are joined before the classifier.
    "cub200-gentle-two": replace(
        _GENTLE,
        backbone="efficientnet_lite0+efficientnet_lite2",
        tuning=replace(
            _GENTLE.tuning, frozen=tuple(f"parts.{part}.{name}" for part in (0, 1) for name in _GENTLE.tuning.frozen)
        ),
    ),
}  # fmt: skip
RECIPES: dict[str, Recipe] = {name: replace(plan, name=name) for name, plan in _PLANS.items()}


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
