"""A base session in progress: what changes from step to step, and how it is saved and taken up again."""

import copy
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import cast, final

import torch
from torch import Tensor

from masil.backbones import Backbone
from masil.collapse import class_means
from masil.errors import InputError, MasilError
from masil.progress import Bar
from masil.storage import commit, write_json
from masil.training.batches import TURNS, Batches
from masil.training.compute import TIMED, WARM, ComputeSettings, ForwardChoice, World, long_sizes
from masil.training.convolution import choose_forms, with_small_maps
from masil.training.network import Network, activations, make_average, make_network, measure, refresh
from masil.training.optimiser import Optimiser, freeze, set_training
from masil.training.trained import FILE, Checkpoint, Row, check_fits, fill, write_checkpoint
from masil.wording import duration

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
        folder: Path,
        *,
        settings: ComputeSettings,
        world: World,
        names: tuple[str, ...] | None = None,
    ) -> None:
        if batches.loss.needs_whole_batch and world.size > 1:
            raise InputError("The contrastive loss compares the images of one batch and so needs one process.")
        self.batches, self.recipe, self.settings, self.world, self.folder = (
            batches, batches.recipe, settings, world, folder
        )  # fmt: skip
        self.names = names  # of the classes
        name, clean = commit()
        self.code = name if clean else f"{name} and changes" if name else None
        self.config = backbone.config()
        learning = copy.deepcopy(backbone).requires_grad_(True)
        with_small_maps(learning)
        self.network = make_network(learning, batches.classes, self.recipe).to(batches.device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network.cast = settings.cast
        freeze(self.network, self.recipe.tuning)
        averaging = self.recipe.average
        self.average = None if averaging.kind == "none" else make_average(self.network, averaging)
        self.wrapped = world.wrap_ddp(self.network, batches.device)
        self.optimiser = Optimiser(self.network, self.recipe)
        self.long = long_sizes(self.recipe, batches.steps)
        self.choice = ForwardChoice(learning, self.long if settings.compile else ())
        self.forms: dict[str, str] = {}  # how convolutions on small maps are computed, by their shape
        self.epoch = self.step = 0
        self.history: list[Row] = []
        self.running = {"loss": 0.0, "seconds": 0.0}

    def begin(self) -> None:
        """Make what needs the images before the first step."""
        if self.recipe.loss.get("start") == "means":
            rows = self.batches.watched
            seen = activations(self.network, self.batches, self.batches.pixels[rows], self.pixels)
            means = class_means(seen, self.batches.labels[rows])
            self.network.head.start_at(means.repeat(TURNS, 1) if self.recipe.rotated else means)

    def prepare(self) -> None:
        """Let the loss make what it needs of the images and keeps in no checkpoint."""
        batches = self.batches
        self.network.head.prepare(self.network.backbone, batches.pixels, batches.labels, self.recipe.pixels(0))

    @property
    def averaged(self) -> Network | None:
        """The network of averaged weights, once there are any."""
        return cast("Network", self.average.module) if self.average and self.average.n_averaged else None

    @property
    def pixels(self) -> int:
        """Pixels a side in the current epoch."""
        return self.recipe.pixels(self.epoch)

    def run_epoch(self, advance: Bar, every: int) -> None:
        """Train to the end of the current epoch, saving after every `every` steps (0: at the end alone)."""
        self._enter_stage()
        order = self.batches.order(self.epoch)
        for step in range(self.step, self.batches.steps):
            loss, seconds = self._train(step, order)
            self.running["loss"] += loss
            self.running["seconds"] += seconds
            self.step = step + 1
            advance(self._cost(self.epoch))
            if every and self.step % every == 0 and self.step < self.batches.steps:
                self.save()
        self._close()

    def epoch_seconds(self, px: int) -> float:
        """Say how long an epoch at this size takes, by steps of this network; it is trained on meanwhile."""
        self.epoch = next(epoch for epoch in range(self.recipe.epochs) if self.recipe.pixels(epoch) == px)
        self._enter_stage()
        order, steps = self.batches.order(0), WARM + TIMED
        if px in self.choice.sizes:
            steps += WARM + 2 * TIMED
        seconds = [self._train(step % self.batches.steps, order)[1] for step in range(steps)]
        return self.batches.steps * median(seconds[-TIMED:])

    def _enter_stage(self) -> None:
        """Let convolutions take their fastest form, and switch to training mode."""
        if self.pixels in self.long and self.batches.device.type == "cpu":
            images = self.batches.batch // self.world.size
            choose_forms(self.network.backbone, (images, self.pixels), self.settings.cast, self.forms)
        set_training(self.network, self.recipe.tuning)

    def _train(self, step: int, order: Tensor) -> tuple[float, float]:
        """Take one step, compiled or not; give the loss of the global batch and the seconds."""
        started = time.perf_counter()
        self.network.run = self.choice.forward(self.pixels)
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
        settings = self.recipe.average
        if self.average and (settings.kind == "ema" or self.epoch >= self.recipe.epochs - settings.epochs):
            self.average.update_parameters(self.network)
        seconds = time.perf_counter() - started
        self.choice.note(self.pixels, seconds)
        return value, seconds

    def _close(self) -> None:
        """Measure, note the epoch's row, save."""
        started = time.perf_counter()
        recipe, steps, px = self.recipe, self.batches.steps, self.pixels
        final = self.epoch + 1 == recipe.epochs
        if final:
            self._refresh()
        every = recipe.watch.nc_every
        collapse = every > 0 and (final or (self.epoch + 1) % every == 0)
        measured = measure(self.averaged or self.network, self.batches, px, collapse)
        seconds = self.running["seconds"] + time.perf_counter() - started
        row = {
            "epoch": self.epoch + 1,
            "pixels": px,
            "loss": self.running["loss"] / steps,
            "lr": recipe.sgd.lr * recipe.schedule.factor((self.epoch + 1) * steps - 1, recipe.epochs * steps),
            "images_per_second": steps * self.batches.batch / self.running["seconds"],
            "seconds": seconds,
            "commit": self.code,
            **measured,
        }
        self.history.append(_tidy(row))
        self.epoch, self.step, self.running = self.epoch + 1, 0, {"loss": 0.0, "seconds": 0.0}
        self.save()
        if self.world.writes:
            write_json(self.folder / "history.json", self.history)
            left = self.work_left() * seconds / (steps * self._cost(self.epoch - 1))
            LOG.info(_sentence(self.history[-1], recipe.epochs, left))

    def work_left(self) -> float:
        """Give the steps still to be taken, smaller images counted as the share of a step that they take."""
        whole = sum(self.batches.steps * self._cost(epoch) for epoch in range(self.epoch, self.recipe.epochs))
        return whole - self.step * self._cost(self.epoch)

    def _cost(self, epoch: int) -> float:
        return (self.recipe.pixels(epoch) / max(px for _, px in self.recipe.stages)) ** 2

    def _refresh(self) -> None:
        """Give a mean over the last epochs batch norms of its own, unless they are not to be touched."""
        tuning = self.recipe.tuning
        if self.averaged and self.recipe.average.kind == "last" and not (tuning.freeze_batch_norm or tuning.frozen):
            order = self.batches.order(self.epoch)
            steps = range(min(REFRESH, self.batches.steps))
            refresh(self.averaged.backbone, (self.batches(self.epoch, step, order).pixels for step in steps))

    def checkpoint(self) -> Checkpoint:
        """Give everything that the rest of the run depends on."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state(),
            "average": self.averaged.state_dict() if self.averaged else {},
        }
        return Checkpoint(
            recipe=self.recipe,
            backbone=self.config,
            classes=self.batches.classes,
            data=self.batches.key,
            engine={**asdict(self.settings), "convolutions": self.forms},
            epoch=self.epoch,
            step=self.step,
            tensors={f"{part}.{key}": value for part, state in parts.items() for key, value in state.items()},
            history=self.history,
            running=self.running,
            averaged=int(self.average.n_averaged) if self.average else 0,
            names=self.names,
        )

    def save(self) -> None:
        """Write a checkpoint, unless a weight is no number: then the last good one stays."""
        checkpoint = self.checkpoint()
        if not checkpoint.finite():
            raise DivergedError(f"A weight is not finite after epoch {self.epoch}, step {self.step}. {self._advice()}")
        if self.world.writes:
            write_checkpoint(self.folder, checkpoint)

    def restore(self, saved: Checkpoint) -> None:
        """Take up a run where its checkpoint left it."""
        path = self.folder / FILE
        check_fits(saved, self.checkpoint(), path)
        self.names = self.names or saved.names
        fill(self.network, saved.part("network"), path)
        self.optimiser.load(saved.part("optimiser"))
        if self.average and saved.averaged:
            fill(self.average.module, saved.part("average"), path)
            self.average.n_averaged.fill_(saved.averaged)
        self.epoch, self.step = saved.epoch, saved.step
        self.history, self.running = list(saved.history), dict(saved.running)
        if different := self.settings.differences(saved.engine):
            LOG.warning("The run goes on differently (%s): its last bits may differ.", "; ".join(different))
        else:
            self.forms = dict(saved.engine.get("convolutions", {}))  # what was fastest then, for the same bits
        done = f"epoch {self.epoch + 1} of {self.recipe.epochs}, step {self.step}"
        LOG.info("Resuming %s at %s.", path, done)

    def _advice(self) -> str:
        kept = self.folder / FILE
        saved = f"The last good checkpoint is kept in {kept}." if kept.exists() else "No checkpoint was written yet."
        return f"{saved} Lower the learning rate or warm up for longer."


def _tidy(row: Row) -> Row:
    """Shorten numbers to what they mean, and leave out what is none."""
    known = {
        name: value
        for name, value in row.items()
        if value is not None and (not isinstance(value, float) or math.isfinite(value))
    }
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in known.items()}


def _sentence(row: Row, epochs: int, seconds_left: float) -> str:
    """Say a row in one line."""
    parts = [f"epoch {row['epoch']}/{epochs}", f"{row['pixels']} px", f"loss {row['loss']:.3f}"]
    if "accuracy" in row:
        parts.append(f"held-out accuracy {100 * row['accuracy']:.1f} %")
    if "nc1" in row:
        parts.append(f"NC1 {row['nc1']:.3g}")
    parts += [f"{row['images_per_second']:.0f} images/s", f"{duration(row['seconds'])}, {duration(seconds_left)} left"]
    return " · ".join(parts)
