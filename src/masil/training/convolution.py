"""3 × 3 convolutions on small maps as matrix products, where a CPU library's own are slow.

*Winograd* (1980). One line of a convolution is bilinear in pixels x and taps w, and so can be written
y = S ((T x) ⊙ (G w)) with fixed matrices and r products in place of 3 per output. In two dimensions the same holds with
T ⊗ T, G ⊗ G and S ⊗ S; summed over channels, the r² products become r² matrix products [n c] · [c o]. Border and tiles
are part of T and S, so nothing is padded or gathered. A 4 × 4 map takes 36 products instead of 144. In float32 alone:
the transforms would lose too many of bfloat16's eight bits.
*Dense*. A 2 × 2 map sees all of itself, so one product with a dense matrix serves.
*Unfolded*. The 3 × 3 surroundings of each output side by side, times the weights.

Which is fastest depends on channels, size, stride, precision and processor; `choose_forms` times each layer on maps of
its real size. `benchmarks/training.py --layers` shows the times.
"""

import logging
from functools import lru_cache, partial
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.hardware import time_in_turn

LOG = logging.getLogger(__name__)
# Where the polynomials of Cook and Toom are evaluated, besides infinity: few, small and easily told apart in float32.
POINTS = (0.0, 1.0, -1.0, 0.5, -2.0)
TILES = {2: 2, 3: 3, 4: 4, 6: 3, 8: 4}  # side of the output map -> outputs of a tile; larger sides do not pay
CHANNELS = 128  # fewer do not pay: transforms grow with c, products with c²
UNFOLDED = 8  # the largest side of a map that is unfolded
ROUNDS = 2  # of timing, after one that warms up


class Plan(NamedTuple):
    """The matrices of one line: T [r t size], G [r 3] and S [out r t], for r products in each of t tiles."""

    T: Tensor
    G: Tensor
    S: Tensor


@final
class SmallMapConv2d(nn.Conv2d):
    """A 3 × 3 convolution that is computed as matrix products where the map is small, and by torch elsewhere."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__(conv.in_channels, conv.out_channels, 3, conv.stride[0], padding=1, bias=False, device="meta")
        self.weight = conv.weight
        stride = conv.stride[0]
        # At stride 2, more than one tile does not pay.
        sides = [side for side, tile in TILES.items() if stride == 1 or side == tile]
        self.plans = {side * stride: transforms(side * stride, stride) for side in sides}
        self.chosen: dict[int, str] = {}  # side of the map → the form that `choose_forms` found fastest

    def forward(self, x: Tensor) -> Tensor:
        """Convolve [n c h w]."""
        h, w = x.shape[2:]
        if x.device.type != "cpu" or h != w:
            return super().forward(x)
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        forms = self.forms(h, dtype)
        chosen = self.chosen.get(h)
        return self.compute(x.to(dtype), chosen if chosen in forms else forms[0])

    def forms(self, side: int, dtype: torch.dtype) -> list[str]:
        """Name the forms for maps of a size, the one first that is taken where none was timed."""
        if dtype not in (torch.float32, torch.bfloat16):
            return ["torch"]
        forms = ["torch"]
        if side <= UNFOLDED:
            forms.append("unfolded")
        if side == 2:
            forms.insert(0 if dtype == torch.bfloat16 and self.stride[0] == 1 else 1, "dense")
        if dtype == torch.float32 and side in self.plans:
            forms.insert(0, "winograd")
        return forms

    def compute(self, x: Tensor, form: str) -> Tensor:
        """Convolve square maps [n c h h] by one of the forms."""
        if form == "torch":
            return super().forward(x)
        weight, stride = self.weight.to(x.dtype), self.stride[0]
        if form == "winograd":
            return convolve(x, weight, self.plans[x.shape[2]])
        return (convolve_whole if form == "dense" else convolve_unfolded)(x, weight, stride)


def with_small_maps(module: nn.Module) -> None:
    """Let the 3 × 3 convolutions of `module` that are wide enough be `SmallMapConv2d`, with the same parameters."""
    for name, child in module.named_children():
        if type(child) is nn.Conv2d and _fits(child):
            setattr(module, name, SmallMapConv2d(child))
        else:
            with_small_maps(child)


def _fits(conv: nn.Conv2d) -> bool:
    return (
        (conv.kernel_size, conv.padding, conv.dilation) == ((3, 3), (1, 1), (1, 1))
        and conv.stride in ((1, 1), (2, 2))
        and conv.groups == 1
        and conv.bias is None
        and conv.padding_mode == "zeros"
        and min(conv.in_channels, conv.out_channels) >= CHANNELS
    )


def convolve(x: Tensor, weight: Tensor, plan: Plan) -> Tensor:
    """Convolve [n c h h] with [o c 3 3], border 1: y = (S ⊗ S) ((T ⊗ T) x · (G ⊗ G) w), channels last in and out."""
    n, c, h, _ = x.shape
    o = len(weight)
    T, G, S = plan
    r, t = T.shape[:2]  # products of a tile, tiles of a line
    out = len(S)
    # o before c, as in memory: neither the weights nor their gradient need to be transposed.
    U = (torch.kron(G, G) @ weight.permute(2, 3, 0, 1).reshape(9, o * c)).view(r * r, o, c).transpose(1, 2)
    pixels = x.permute(0, 2, 3, 1)  # [n h h c]
    if t == 1:
        V = _each(torch.kron(T[:, 0], T[:, 0]), pixels.reshape(n, h * h, c)).transpose(0, 1)  # [r² n c]
        y = _each(torch.kron(S[:, :, 0], S[:, :, 0]), torch.bmm(V, U).transpose(0, 1))  # [n out² o]
    else:
        # Lines first, then columns; in between the r² products are brought together over all tiles.
        T, S = T.flatten(0, 1), S.flatten(1)  # [r·t h], [out r·t]
        lines = _each(T, pixels.reshape(n, h, h * c)).view(n * r * t, h, c)
        V = _each(T, lines).view((n, r, t, r, t, c)).permute((1, 3, 0, 2, 4, 5)).reshape(r * r, n * t * t, c)
        products = torch.bmm(V, U).view((r, r, n, t, t, o)).permute((2, 0, 3, 1, 4, 5)).reshape(n * r * t, -1, o)
        y = _each(S, _each(S, products).view(n, r * t, -1))
    return y.view(n, out, out, o).permute(0, 3, 1, 2)


def convolve_whole(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Convolve [n c 2 2] with [o c 3 3], border 1, by one product with a dense matrix, channels last in and out.

    Each output (four of them, or one at stride 2) sees the whole map, through a 2 × 2 window of the taps of its own.
    """
    n, c, side, _ = x.shape
    out = side // stride
    windows = torch.stack([weight[:, :, 1 - i : 3 - i, 1 - j : 3 - j] for i in range(out) for j in range(out)])
    dense = windows.permute((0, 1, 3, 4, 2)).reshape(out * out * len(weight), 4 * c)  # from [out² o c 2 2]
    y = functional.linear(x.permute(0, 2, 3, 1).reshape(n, 4 * c), dense)
    return y.view(n, out, out, len(weight)).permute(0, 3, 1, 2)


def convolve_unfolded(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Convolve [n c h h] with [o c 3 3], border 1, by one product [n·out² 9c] · [9c o], channels last in and out."""
    end = x.shape[2] - (x.shape[2] - 1) % stride  # one past the first tap of the last output
    padded = functional.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
    taps = [padded[:, i : i + end : stride, j : j + end : stride] for i in range(3) for j in range(3)]
    y = functional.linear(torch.cat(taps, 3), weight.permute(0, 2, 3, 1).flatten(1))
    return y.permute(0, 3, 1, 2)


def choose_forms(backbone: nn.Module, shape: tuple[int, int], cast: torch.dtype | None, known: dict[str, str]) -> None:
    """Let the small maps of a batch of `shape` (images, px a side) take the forms that are fastest on this machine.

    `known` has the form for layers and maps that were timed before, and takes in the others.
    """
    batch, px = shape
    inputs: dict[SmallMapConv2d, torch.Size] = {}
    layers = [module for module in backbone.modules() if isinstance(module, SmallMapConv2d)]
    hooks = [
        layer.register_forward_pre_hook(lambda module, given: inputs.update({module: given[0].shape}))
        for layer in layers
    ]
    backbone.eval()
    with torch.no_grad():
        backbone(torch.zeros(1, 3, px, px))
    for hook in hooks:
        hook.remove()
    for layer, (_, c, h, w) in inputs.items():
        forms = layer.forms(h, cast or torch.float32)
        if h == w and len(forms) > 1:
            key = f"{c} to {layer.out_channels} channels, {h} × {h}, stride {layer.stride[0]}"
            if key not in known:
                x = torch.rand(batch, c, h, h, generator=torch.Generator().manual_seed(0))
                known[key] = fastest(layer, x.contiguous(memory_format=torch.channels_last), forms, cast)
            layer.chosen[h] = known[key]


def fastest(layer: SmallMapConv2d, x: Tensor, forms: list[str], cast: torch.dtype | None) -> str:
    """Time a layer forward and backward in each form, in turns, and name the one with the least processor time."""
    x.requires_grad_()
    learnt = [tensor for tensor in (x, layer.weight) if tensor.requires_grad]

    def forward_and_backward(form: str) -> None:
        with torch.autocast("cpu", cast, enabled=cast is not None):
            y = layer.compute(x if cast is None else x.to(cast), form)
        torch.autograd.grad(y, learnt, y.detach())

    work = {form: partial(forward_and_backward, form) for form in forms}
    best = time_in_turn(work, x.device, ROUNDS, processor_time=True)
    times = ", ".join(f"{form} {1000 * least:.1f} ms" for form, least in best.items())
    LOG.info("A convolution of %s to %d channels takes: %s.", list(x.shape), layer.out_channels, times)
    return min(best, key=best.__getitem__)


def _each(matrix: Tensor, batch: Tensor) -> Tensor:
    """Multiply every matrix of a batch [b k m] from the left by one [j k]."""
    return torch.bmm(matrix.expand(len(batch), -1, -1), batch)


@lru_cache
def transforms(size: int, stride: int) -> Plan:
    """Give the matrices for a line of `size` pixels with a border of one zero at either end.

    At stride 2 the taps fall on pixels of two kinds: the middle one on even pixels, the outer two on odd ones. These
    are a filter of one tap and a filter of two, each with its own products.
    """
    out = size // stride
    tile = TILES[out]
    tiles = out // tile
    # taps of a filter, and the pixel on which the first of them falls for output 0
    filters = [((0, 1, 2), -1)] if stride == 1 else [((1,), 0), ((0, 2), -1)]
    parts = []
    for taps, first in filters:
        AT, g, BT = cook_toom(tile, len(taps))
        r = len(g)
        T, G, S = np.zeros((r, tiles, size)), np.zeros((r, 3)), np.zeros((out, r, tiles))
        G[:, taps] = g
        for k in range(tiles):
            S[k * tile : (k + 1) * tile, :, k] = AT
            for j in range(r):
                pixel = (k * tile + j) * stride + first
                if 0 <= pixel < size:
                    T[:, k, pixel] = BT[:, j]
        parts.append((T, G, S))
    stacked = (np.concatenate([part[i] for part in parts], axis) for i, axis in ((0, 0), (1, 0), (2, 1)))
    return Plan(*(torch.from_numpy(matrix).float() for matrix in stacked))


def cook_toom(outputs: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give Aᵀ [m r], G [r taps] and Bᵀ [r r], r = m + taps − 1, so that Aᵀ ((G w) ⊙ (Bᵀ x)) is x correlated with w.

    Two polynomials are multiplied by their values at r − 1 points a_i and at infinity. G evaluates the filter, divided
    by Π_{k≠i} (a_i − a_k); Aᵀ evaluates the other factor, transposed; Bᵀ holds the coefficients of Π_{k≠i} (z − a_k),
    the Lagrange polynomials that put the product together, transposed too.
    """
    r = outputs + taps - 1
    points = POINTS[: r - 1]
    AT, G, BT = np.zeros((outputs, r)), np.zeros((r, taps)), np.zeros((r, r))
    for i, point in enumerate(points):
        others = np.array([other for other in points if other != point])
        BT[i, : r - 1] = np.poly(others)[::-1] if len(others) else 1.0
        G[i] = point ** np.arange(taps) / np.prod(point - others)
        AT[:, i] = point ** np.arange(outputs)
    BT[-1] = np.poly(points)[::-1] if points else 1.0
    G[-1, -1], AT[-1, -1] = 1.0, 1.0
    return AT, G, BT
