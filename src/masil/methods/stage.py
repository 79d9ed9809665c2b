"""Sessions that train a network's last stage and its rows, gently, while made images stand in for old ones."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import Backbone
from masil.collapse import class_means
from masil.data import Images
from masil.hardware import resolve_device
from masil.methods.cuts import UpToLastBlock, last_blocks, network_of_blocks
from masil.methods.descent import Descends, take_step
from masil.methods.method import Keeps, LargestScore, Queries, Samples, Task, state
from masil.methods.network import CHUNK, FrozenPart, LastBlock, fastest_type, precision_remark

MOMENTUM, DECAY = 0.9, 6e-4
HALVED = (0.4, 0.7)  # of a session's epochs, after which the rates are halved


@final
class StageNetwork:
    """Scaled cosines between a network's activations and the rows of classes; its last stage can be trained.

    Images of the data set are run up to that stage once and stored. Images that are made here run through all of it.
    """

    def __init__(
        self, backbone: Backbone, rows: Tensor, scale: float, device: str, cast: torch.dtype | None = None
    ) -> None:
        self.device = resolve_device(device)
        self.cast = cast  # the type that convolutions compute in while something is trained; None for float32
        self.frozen = FrozenPart(backbone, device, cut=partial(UpToLastBlock, stage=True))
        self.lower = copy.deepcopy(self.frozen.network).to(self.device)
        self.stage = LastBlock(backbone, self.frozen.network.shape, stage=True).to(self.device).requires_grad_(False)
        self.rows = rows.to(self.device)  # [k d]
        self.scale = scale

    def __call__(self, pixels: Tensor) -> Tensor:
        """Give the logits [n k] of normalised pixels [n 3 h w] of any size."""
        with self.casting():
            maps = self.stage.block(self.lower.maps(pixels))
        return self._cosines(maps.float().mean((2, 3)))

    def logits(self, entering: Tensor) -> Tensor:
        """Give the logits [n k] of rows that enter the last stage."""
        with self.casting():
            maps = self.stage.maps(entering)
        return self._cosines(maps.float().mean((2, 3)))

    def casting(self) -> torch.autocast:
        """Let convolutions compute in the type chosen."""
        return torch.autocast(self.device.type, self.cast, enabled=self.cast is not None)

    def _cosines(self, activations: Tensor) -> Tensor:
        return self.scale * functional.normalize(activations) @ functional.normalize(self.rows).T

    def entering(self, images: Images) -> Tensor:
        """Give images as rows that enter the last stage."""
        return self.frozen(images).to(self.device)

    @torch.no_grad()
    def scores(self, queries: Queries) -> Tensor:
        """Give the logits [n k] of images, a chunk at a time; until the stage is trained, by their activations."""
        if self.stage.equals(self.frozen.network.whole, stage=True):
            return self._cosines(queries.activations.float().to(self.device)).cpu()
        rows = self.frozen(queries.shown)
        chunks = torch.split(rows, CHUNK) if len(rows) else [rows]
        return torch.cat([self._cosines(self.stage(chunk.to(self.device))).cpu() for chunk in chunks])

    def batch_norms(self) -> Iterator[nn.BatchNorm2d]:
        """Yield every batch norm that an image passes."""
        unused = set(nn.ModuleList(last_blocks(self.lower.whole, stage=True)).modules())
        for module in (*self.lower.modules(), *self.stage.modules()):
            if isinstance(module, nn.BatchNorm2d) and module not in unused:
                yield module

    def snapshot(self) -> Self:
        """Give the network as it is now; what is trained later does not change it."""
        before = copy.copy(self)
        before.stage, before.rows = copy.deepcopy(self.stage), self.rows.clone()
        return before


@dataclass(kw_only=True)
class StageMethod(Descends, LargestScore):
    """A method that keeps a network and no images; its sessions train the last stage and the rows."""

    sees = "images"
    trains = "network"
    keeps = Keeps.WEIGHTS

    scale: float = 16.0
    epochs: int = 100
    lr: float = 0.1  # of new rows
    gentle: float = 1e-4  # of old rows and the last stage
    net: StageNetwork = state()

    def check_task(self, task: Task) -> None:
        """Refuse a backbone without residual blocks, too."""
        super().check_task(task)
        network_of_blocks(task.network)

    def fit(self, base: Samples, task: Task) -> None:
        """Take the network, with the rows that its base session learnt or else the class means."""
        self.choose(base, task)
        rows = class_means(functional.normalize(base.activations.float()), base.labels)
        learnt = task.trained
        if learnt and learnt.recipe.method is None and learnt.projection is None and learnt.frame is None:
            rows = learnt.class_vectors.float().clone()
        self.net = StageNetwork(task.network, rows, self.scale, task.device, fastest_type(task.device))

    def train_session(self, shots: Samples, loss: Callable[[], Tensor]) -> None:
        """Append rows for the new classes, drawn from ±1/√d, and lower `loss` of all logits, one step an epoch.

        New rows are trained at rate `lr`, old ones and the last stage at `gentle`; what comes before it is fixed.
        """
        net = self.net
        k, d = net.rows.shape
        added = (2 * torch.rand(shots.classes - k, d, generator=self.generator) - 1) / d**0.5
        old, added = net.rows.clone().requires_grad_(), added.to(net.device).requires_grad_()
        stage = list(net.stage.requires_grad_(True).parameters())

        def whole_loss() -> Tensor:
            net.rows = torch.cat([old, added])
            return loss()

        def train(rate: float) -> None:
            gentle = self.gentle * (rate / self.lr if self.lr else 1)
            groups = [{"params": [added], "lr": rate}, {"params": [*stage, old], "lr": gentle}]
            optimiser = torch.optim.SGD(groups, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True)
            rates = torch.optim.lr_scheduler.MultiStepLR(optimiser, [int(share * self.epochs) for share in HALVED], 0.5)
            for _ in range(self.epochs):
                take_step(optimiser, whole_loss(), rates)

        self.steadily([added, *stage, old], train, whole_loss, self.lr)
        net.rows = torch.cat([old, added]).detach()
        net.stage.requires_grad_(False)

    def remarks(self) -> dict[str, Any]:
        """Say in which precision was trained, where it was not float32."""
        return {**super().remarks(), **precision_remark(self.net.cast)}

    def scores(self, queries: Queries) -> Tensor:
        """Give scaled cosines."""
        return self.net.scores(queries)
