"""A base session in progress: what changes from step to step, and how it is saved and taken up again."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import final

import torch
from torch import Tensor

from masil.backbones import Backbone
from masil.errors import InputError, MasilError
from masil.files import write_json
from masil.progress import Bar
from masil.training.average import WeightAverage
from masil.training.batches import TURNS, Batches
from masil.training.checkpoint import FILE, Checkpoint, check_fits, fill, finite, write_checkpoint
from masil.training.compute import TIMED, WARM, ComputeSettings, ForwardChoice, is_long
from masil.training.convolution import with_small_maps
from masil.training.distributed import World, wrap_ddp
from masil.training.history import Row, sentence, tidy
from masil.training.loss import Network
from masil.training.optimiser import Optimiser, freeze, set_training
from masil.training.recipe import Recipe
from masil.training.trained import built_loss
from masil.training.watch import activations, measure

LOG = logging.getLogger(__name__)
REFRESH = 50  # batches from which an average's batch norms are estimated anew


class DivergedError(MasilError):
    """The loss or a weight is no number any more."""


@final
class TrainingRun:
    """Network, optimiser and average at `epoch` and `step`."""

    def __init__(
        self,
        backbone: Backbone,
        batches: Batches,
        recipe: Recipe,
        settings: ComputeSettings,
        world: World,
        folder: Path,
        names: tuple[str, ...] | None = None,
    ) -> None:
        if batches.loss.needs_whole_batch and world.size > 1:
            raise InputError("The contrastive loss compares the images of one batch and so needs one process.")
        self.batches, self.recipe, self.settings, self.world, self.folder = batches, recipe, settings, world, folder
        self.names = names  # of the classes
        self.config = backbone.config()
        own = copy.deepcopy(backbone).requires_grad_(True)
        with_small_maps(own)
        self.network = Network(own, built_loss(backbone.features, batches.classes, recipe)).to(batches.device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network.cast = settings.cast
        freeze(self.network, recipe.tuning)
        self.average = None if recipe.average.kind == "none" else WeightAverage(self.network, recipe.average)
        self.wrapped = wrap_ddp(self.network, world, batches.device)
        self.optimiser = Optimiser(self.network, recipe)
        self.choice = ForwardChoice(self.network.backbone)
        self.epoch = self.step = 0
        self.history: list[Row] = []
        self.running = {"loss": 0.0, "seconds": 0.0}

    def begin(self) -> None:
        """Make what needs the images before the first step."""
        if self.recipe.loss.get("start") == "means":
            found = activations(self.network, self.batches, self.batches.pixels[self.batches.watched], self.pixels)
            labels = self.batches.labels[self.batches.watched]
            means = torch.stack([found[labels == label].mean(0) for label in range(self.batches.classes)])
            self.network.head.start_at(means.repeat(TURNS, 1) if self.recipe.rotated else means)

    @property
    def pixels(self) -> int:
        """Pixels a side in the current epoch."""
        return self.recipe.pixels(self.epoch)

    def run_epoch(self, advance: Bar, every: int) -> None:
        """Train to the end of the current epoch, saving after every `every` steps (0: at the end alone)."""
        set_training(self.network, self.recipe.tuning)
        compiles = self.settings.compile and is_long(self.recipe, self.pixels, self.batches.steps)
        order = self.batches.order(self.epoch)
        for step in range(self.step, self.batches.steps):
            started = time.perf_counter()
            self.network.run = self.choice.forward(self.pixels) if compiles else self.network.backbone.forward
            self.running["loss"] += self._train(step, order)
            seconds = time.perf_counter() - started
            self.running["seconds"] += seconds
            if compiles:
                self.choice.note(self.pixels, seconds)
            self.step = step + 1
            advance(self._cost(self.epoch))
            if every and self.step % every == 0 and self.step < self.batches.steps:
                self.save()
        self._close()

    def epoch_seconds(self, px: int) -> float:
        """Say how long an epoch at this size takes, by steps of this network; it is trained on meanwhile."""
        set_training(self.network, self.recipe.tuning)
        self.epoch = next(epoch for epoch in range(self.recipe.epochs) if self.recipe.pixels(epoch) == px)
        compiles = self.settings.compile and is_long(self.recipe, px, self.batches.steps)
        order, seconds = self.batches.order(0), []
        for step in range(2 * (WARM + TIMED) + TIMED if compiles else WARM + TIMED):
            started = time.perf_counter()
            self.network.run = self.choice.forward(px) if compiles else self.network.backbone.forward
            self._train(step % self.batches.steps, order)
            seconds.append(time.perf_counter() - started)
            if compiles:
                self.choice.note(px, seconds[-1])
        return self.batches.steps * median(seconds[-TIMED:])

    def _train(self, step: int, order: Tensor) -> float:
        """Take one step and give the loss of the global batch."""
        batch = self.batches(self.epoch, step, order)
        share = self.world.share(len(batch.labels))
        pixels, labels, partners, lam = (tensor[share] for tensor in batch)
        loss = self.wrapped(self.network.backbone.preprocess(pixels), labels, partners, lam)
        value = self.world.mean(loss)
        if not math.isfinite(value):
            raise DivergedError(f"The loss became {value} in epoch {self.epoch + 1}, step {step + 1}. {self._advice()}")
        loss.backward()
        done = self.epoch * self.batches.steps + step
        self.optimiser.step(self.recipe.schedule.factor(done, self.recipe.epochs * self.batches.steps))
        if self.average is not None and self._averages():
            self.average.update(self.network)
        return value

    def _averages(self) -> bool:
        settings = self.recipe.average
        return settings.kind == "ema" or self.epoch >= self.recipe.epochs - settings.epochs

    def _close(self) -> None:
        """Measure, note the epoch's row, save."""
        started = time.perf_counter()
        recipe, steps, px = self.recipe, self.batches.steps, self.pixels
        final = self.epoch + 1 == recipe.epochs
        if final:
            self._refresh()
        every = recipe.watch.nc_every
        collapse = every > 0 and (final or (self.epoch + 1) % every == 0)
        kept = self.average.network if self.average is not None and self.average.count else self.network
        measured = measure(kept, self.batches, px, collapse)
        row = {
            "epoch": self.epoch + 1,
            "pixels": px,
            "loss": self.running["loss"] / steps,
            "lr": recipe.sgd.lr * recipe.schedule.factor((self.epoch + 1) * steps - 1, recipe.epochs * steps),
            "images_per_second": steps * self.batches.batch / self.running["seconds"],
            "seconds": self.running["seconds"] + time.perf_counter() - started,
            **measured,
        }
        self.history.append(tidy(row))
        self.epoch, self.step, self.running = self.epoch + 1, 0, {"loss": 0.0, "seconds": 0.0}
        self.save()
        if self.world.writes:
            write_json(self.folder / "history.json", self.history)
            left = self.work_left() * row["seconds"] / (steps * self._cost(self.epoch - 1))
            LOG.info(sentence(self.history[-1], recipe.epochs, left))

    def work_left(self) -> float:
        """Give the steps still to be taken, smaller images counted as the share of a step that they take."""
        whole = sum(self.batches.steps * self._cost(epoch) for epoch in range(self.epoch, self.recipe.epochs))
        return whole - self.step * self._cost(self.epoch)

    def _cost(self, epoch: int) -> float:
        return (self.recipe.pixels(epoch) / max(px for _, px in self.recipe.stages)) ** 2

    def _refresh(self) -> None:
        """Give a mean over the last epochs batch norms of its own, unless they are not to be touched."""
        tuning = self.recipe.tuning
        if self.average is None or self.recipe.average.kind != "last" or tuning.freeze_batch_norm or tuning.frozen:
            return
        order = self.batches.order(self.epoch)
        steps = range(min(REFRESH, self.batches.steps))
        self.average.refresh(self.batches(self.epoch, step, order).pixels for step in steps)

    def checkpoint(self) -> Checkpoint:
        """Give everything that the rest of the run depends on."""
        averaged = self.average.count if self.average is not None else 0
        parts: dict[str, Mapping[str, Tensor]] = {
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state(),
            "average": self.average.network.state_dict() if self.average is not None and averaged else {},
        }
        return Checkpoint(
            recipe=self.recipe,
            backbone=self.config,
            classes=self.batches.classes,
            data=self.batches.key,
            engine=self.settings.to_json(),
            epoch=self.epoch,
            step=self.step,
            tensors={f"{part}.{key}": value for part, state in parts.items() for key, value in state.items()},
            history=self.history,
            running=self.running,
            averaged=averaged,
            names=self.names,
        )

    def save(self) -> None:
        """Write a checkpoint, unless a weight is no number: then the last good one stays."""
        checkpoint = self.checkpoint()
        if not finite(checkpoint.part("network")):
            raise DivergedError(f"A weight is not finite after epoch {self.epoch}, step {self.step}. {self._advice()}")
        if self.world.writes:
            write_checkpoint(self.folder, checkpoint)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take up a run where its checkpoint left it."""
        check_fits(checkpoint, self.recipe, self.config, self.batches.key, self.folder, self.names)
        self.names = self.names or checkpoint.names
        path = self.folder / FILE
        fill(self.network, checkpoint.part("network"), path)
        self.optimiser.load(checkpoint.part("optimiser"))
        if self.average is not None and checkpoint.averaged:
            fill(self.average.network, checkpoint.part("average"), path)
            self.average.count = checkpoint.averaged
        self.epoch, self.step = checkpoint.epoch, checkpoint.step
        self.history, self.running = list(checkpoint.history), dict(checkpoint.running)
        if different := self.settings.differences(dict(checkpoint.engine)):
            LOG.warning("The run goes on differently (%s): its last bits may differ.", "; ".join(different))
        LOG.info("Resuming %s at epoch %d of %d, step %d.", path, self.epoch + 1, self.recipe.epochs, self.step)

    def _advice(self) -> str:
        kept = self.folder / FILE
        saved = f"The last good checkpoint is kept in {kept}." if kept.exists() else "No checkpoint was written yet."
        return f"{saved} Lower the learning rate or warm up for longer."
