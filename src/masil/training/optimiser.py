"""Which parameter is changed by what: Muon for convolutions, SGD for the rest, nothing for what is frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

import torch
from torch import Tensor, nn

from masil.errors import InputError, StorageError, suggest
from masil.training.muon import Muon
from masil.training.recipe import Recipe, Tuning

BACKBONE = "backbone."  # how the backbone's parameters are called within the trained module


@final
class Optimiser:
    """The optimisers of one module behind one `step`, with their state as named tensors."""

    def __init__(self, module: nn.Module, recipe: Recipe) -> None:
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in module.named_parameters() if parameter.requires_grad
        }
        self.parts = list(_parts(self.names, recipe, _convolutions(module)))
        self.peaks = [[group["lr"] for group in part.param_groups] for part in self.parts]
        self.l2_sp = recipe.tuning.l2_sp
        self.start = {
            parameter: parameter.detach().clone()
            for parameter, name in self.names.items()
            if self.l2_sp and name.startswith(BACKBONE)
        }

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
            for group in part.param_groups:
                for parameter in group["params"]:
                    if (saved := state.get(f"momentum.{self.names[parameter]}")) is not None:
                        part.state[parameter]["momentum_buffer"] = _like(saved, parameter)
        for parameter in self.start:
            name = self.names[parameter]
            if f"start.{name}" not in state:
                raise StorageError(f"The checkpoint lacks the initial weights of {name}, which L2-SP needs.")
            self.start[parameter] = _like(state[f"start.{name}"], parameter)


def freeze(module: nn.Module, tuning: Tuning) -> None:
    """Stop gradients in the backbone's frozen modules; naming a module that is not there is refused."""
    _check_modules(module, [*tuning.frozen, *tuning.rates])
    for name, parameter in module.named_parameters():
        if _belongs(name.removeprefix(BACKBONE), tuning.frozen) and name.startswith(BACKBONE):
            parameter.requires_grad_(False)
        if tuning.freeze_batch_norm and _is_norm(module.get_submodule(name.rpartition(".")[0])):
            parameter.requires_grad_(False)


def set_training(module: nn.Module, tuning: Tuning) -> None:
    """Switch to training mode, except batch norms that are frozen: those keep their running statistics."""
    module.train()
    for name, child in module.named_modules():
        within = name.startswith(BACKBONE) and _belongs(name.removeprefix(BACKBONE), tuning.frozen)
        if _is_norm(child) and (tuning.freeze_batch_norm or within):
            child.eval()


def _parts(names: Mapping[Tensor, str], recipe: Recipe, convolutions: set[Tensor]) -> Iterator[torch.optim.Optimizer]:
    sgd, muon = recipe.sgd, recipe.muon
    taken = convolutions if muon else set()
    groups: dict[tuple[float, float], list[Tensor]] = {}
    turns: dict[float, list[Tensor]] = {}
    for parameter, name in names.items():
        rate = _rate(name, recipe.tuning)
        if parameter in taken:
            turns.setdefault(rate, []).append(parameter)
        else:
            decay = sgd.weight_decay if parameter.ndim > 1 or sgd.decay_vectors else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
    if groups:
        yield torch.optim.SGD(
            [{"params": group, "lr": sgd.lr * rate, "weight_decay": decay} for (rate, decay), group in groups.items()],
            momentum=sgd.momentum,
            nesterov=sgd.nesterov and sgd.momentum > 0,
        )
    if muon and turns:
        settings = [{"params": group, "lr": muon.lr * rate} for rate, group in turns.items()]
        yield Muon(settings, lr=muon.lr, momentum=muon.momentum, rounds=muon.rounds)


def _convolutions(module: nn.Module) -> set[Tensor]:
    """Give the weights that mix channels; a depthwise filter is no matrix worth making orthogonal."""
    return {child.weight for child in module.modules() if isinstance(child, nn.Conv2d) and child.groups == 1}


def _rate(name: str, tuning: Tuning) -> float:
    """Give the factor of the longest named module that holds this parameter of the backbone."""
    if not name.startswith(BACKBONE):
        return 1.0
    holders = [module for module in tuning.rates if _belongs(name.removeprefix(BACKBONE), (module,))]
    return tuning.rates[max(holders, key=len)] if holders else 1.0


def _belongs(name: str, modules: tuple[str, ...]) -> bool:
    """Say whether a name lies within one of the modules; "" is the whole backbone."""
    return any(module == "" or name == module or name.startswith(f"{module}.") for module in modules)


def _check_modules(module: nn.Module, asked: list[str]) -> None:
    known = {name.removeprefix(BACKBONE) for name, _ in module.named_modules() if name.startswith(BACKBONE)}
    for name in asked:
        if name and name not in known:
            raise InputError(f"The backbone has no module '{name}' to freeze or slow down; {suggest(name, known)}")


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm)


def _like(saved: Tensor, parameter: Tensor) -> Tensor:
    """Bring a saved tensor into the parameter's device and layout."""
    return torch.empty_like(parameter).copy_(saved).detach()
