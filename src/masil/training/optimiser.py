"""Which parameter is changed by what: Muon for convolutions, SGD for the rest, nothing for what is frozen."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, final

import torch
from torch import Tensor, nn

from masil.errors import InputError, StorageError, suggest
from masil.training.network import Network
from masil.training.recipe import Recipe, Tuning

# p(s) = 3.4445 s − 4.775 s³ + 2.0315 s⁵ brings singular values in (0, 1] near 1 within a few rounds (Jordan 2024).
LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315


@final
class Muon(torch.optim.Optimizer):
    """W ← √o W/‖W‖ − lr · orthogonal(g + momentum · m), m ← momentum · m + g: momentum of orthogonal steps.

    `torch.optim.Muon` takes matrices alone, works in bfloat16 whatever the processor makes of it, and goes over them
    one by one. Here a convolution [o c h w] is the matrix [o, c·h·w], large products are in the precision of `cast`
    and all else in the weights' own, equal shapes are worked on together, and the weights keep their norm.

    With ‖W‖ = √o and an orthogonal step of about that norm, the learning rate is the relative change of a weight. The
    batch norm behind a convolution makes its scale free, and so the constraint costs nothing.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        rounds: int = 3,
        cast: torch.dtype | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "rounds": rounds, "cast": cast})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take one step; weights without a gradient stay as they are."""
        assert closure is None
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[tuple(weight.shape)].append(weight)
            for shape, weights in alike.items():
                moved = torch.stack([as_matrix(self._nesterov(weight, group["momentum"])) for weight in weights])
                for weight, update in zip(weights, orthogonal(moved, group["rounds"], group["cast"]), strict=True):
                    matrix = as_matrix(weight)
                    matrix.mul_(shape[0] ** 0.5 / matrix.norm().clamp_min(1e-12)).sub_(update, alpha=group["lr"])

    def _nesterov(self, weight: Tensor, momentum: float) -> Tensor:
        assert weight.grad is not None
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        buffer: Tensor = state["momentum_buffer"]
        buffer.mul_(momentum).add_(weight.grad)
        return weight.grad.add(buffer, alpha=momentum)


def as_matrix(weight: Tensor) -> Tensor:
    """View [o c h w] as [o, c·h·w], columns in the order of memory: their order does not matter, a copy would."""
    return weight.flatten(1) if weight.is_contiguous() else weight.movedim(1, -1).flatten(1)


def orthogonal(matrices: Tensor, rounds: int = 3, cast: torch.dtype | None = None) -> Tensor:
    """Send the singular values of matrices [b m n] towards 1, keeping their singular vectors, by Newton–Schulz rounds.

    A round is X ← U X with U = l I + c G + q G² and G = X Xᵀ. Every U is a polynomial in the first G, so they commute,
    and the rounds need only m × m matrices: X ← (… U₂ U₁) X at the end, G ← U G U in between. For the 512 × 4608 of a
    ResNet's last stage that is half the arithmetic of multiplying X in every round. The two products with X, two thirds
    of the work, are in the precision of `cast`; the direction changes by less than .1 in that of bfloat16.
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.transpose(1, 2), rounds, cast).transpose(1, 2)
    X = (matrices / matrices.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None]).to(cast or matrices.dtype)
    G = (X @ X.mT).to(matrices.dtype)
    product: Tensor | None = None
    for remaining in reversed(range(rounds)):
        U = torch.baddbmm(G, G, G, beta=CUBIC, alpha=QUINTIC)
        U.diagonal(dim1=1, dim2=2).add_(LINEAR)
        product = U if product is None else U @ product
        if remaining:
            G = U @ G @ U
    result: Tensor = X if product is None else product.to(X.dtype) @ X
    return result.to(matrices.dtype)


@final
class Optimiser:
    """The optimisers of one network behind one `step`, with their state as named tensors."""

    def __init__(self, network: Network, recipe: Recipe) -> None:
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in network.named_parameters() if parameter.requires_grad
        }
        self.parts = list(_parts(network, recipe, self.names))
        self.peaks = [[group["lr"] for group in part.param_groups] for part in self.parts]
        self.l2_sp = recipe.tuning.l2_sp
        pulled = network.backbone.parameters() if self.l2_sp else ()
        self.start = {parameter: parameter.detach().clone() for parameter in pulled if parameter.requires_grad}

    def step(self, factor: float) -> None:
        """Take one step at `factor` of each peak learning rate, and forget the gradients."""
        # ∇ ½ λ ‖w − w₀‖² = λ (w − w₀)
        for parameter, start in self.start.items():
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - start, alpha=self.l2_sp)
        for part, peaks in zip(self.parts, self.peaks, strict=True):
            for group, peak in zip(part.param_groups, peaks, strict=True):
                group["lr"] = peak * factor
            part.step()
            part.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Give momenta, and what L2-SP pulls towards, by the names of their parameters."""
        momenta = {
            f"momentum.{self.names[parameter]}": state["momentum_buffer"]
            for part in self.parts
            for parameter, state in part.state.items()
            if state.get("momentum_buffer") is not None
        }
        return momenta | {f"start.{self.names[parameter]}": start for parameter, start in self.start.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a state that `state` gave."""
        for part in self.parts:
            for parameter in (parameter for group in part.param_groups for parameter in group["params"]):
                if (saved := state.get(f"momentum.{self.names[parameter]}")) is not None:
                    part.state[parameter]["momentum_buffer"] = _like(saved, parameter)
        for parameter in self.start:
            if (saved := state.get(f"start.{self.names[parameter]}")) is None:
                name = self.names[parameter]
                raise StorageError(f"The checkpoint lacks the initial weights of {name}, which L2-SP needs.")
            self.start[parameter] = _like(saved, parameter)


def freeze(network: Network, tuning: Tuning) -> None:
    """Stop gradients in the backbone's frozen modules; naming a module that is not there is refused."""
    known = dict(network.backbone.named_modules())
    for name in (*tuning.frozen, *tuning.rates):
        if name not in known:
            raise InputError(
                f"The backbone has no module '{name}' to freeze or slow down; {suggest(name, filter(None, known))}"
            )
    for name in tuning.frozen:
        known[name].requires_grad_(False)
    if tuning.freeze_batch_norm:
        for norm in _norms(network):
            norm.requires_grad_(False)


def set_training(network: Network, tuning: Tuning) -> None:
    """Switch to training mode, except batch norms that are frozen: those keep their running statistics."""
    network.train()
    frozen = [network] if tuning.freeze_batch_norm else map(network.backbone.get_submodule, tuning.frozen)
    for norm in chain.from_iterable(map(_norms, frozen)):
        norm.eval()


def _norms(module: nn.Module) -> list[nn.Module]:
    return [child for child in module.modules() if isinstance(child, nn.modules.batchnorm._BatchNorm)]


def _parts(network: Network, recipe: Recipe, learnt: Iterable[Tensor]) -> Iterator[torch.optim.Optimizer]:
    sgd, muon, factors = recipe.sgd, recipe.muon, recipe.tuning.rates
    rates: dict[Tensor, float] = {}
    for name in sorted(factors, key=len):  # of several modules that hold a parameter, the longest name counts
        rates |= dict.fromkeys(network.backbone.get_submodule(name).parameters(), factors[name])
    # Weights that mix channels; a depthwise filter is no matrix worth making orthogonal.
    mixing = {child.weight for child in network.modules() if isinstance(child, nn.Conv2d) and child.groups == 1}
    by_sgd: dict[tuple[float, float], list[Tensor]] = defaultdict(list)  # by rate and decay
    by_muon: dict[float, list[Tensor]] = defaultdict(list)
    for parameter in learnt:
        rate = rates.get(parameter, 1.0)
        if muon and parameter in mixing:
            by_muon[rate].append(parameter)
        else:
            decay = sgd.weight_decay if parameter.ndim > 1 or sgd.decay_vectors else 0.0
            by_sgd[rate, decay].append(parameter)
    if by_sgd:
        yield torch.optim.SGD(
            [{"params": group, "lr": sgd.lr * rate, "weight_decay": decay} for (rate, decay), group in by_sgd.items()],
            momentum=sgd.momentum,
            nesterov=sgd.nesterov and sgd.momentum > 0,
        )
    if muon and by_muon:
        groups = [{"params": group, "lr": muon.lr * rate} for rate, group in by_muon.items()]
        yield Muon(groups, lr=muon.lr, momentum=muon.momentum, rounds=muon.rounds, cast=network.cast)


def _like(saved: Tensor, parameter: Tensor) -> Tensor:
    """Bring a saved tensor into the parameter's device and layout."""
    return torch.empty_like(parameter).copy_(saved).detach()
