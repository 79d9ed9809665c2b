"""Class rows and an image look at each other before they are compared: what CEC and LIMIT share."""

from dataclasses import dataclass, replace
from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.methods.method import Centred, Keeps, LargestScore, Queries, Samples, state

BLOCK = 2048  # rows predicted at a time


@final
@dataclass(frozen=True)
class SeenRows:
    """Class rows [n k d] as each image sees them, kept in parts: row i for image n is S_i + β_ni (v_n − F_i)."""

    S: Tensor  # [k d]
    F: Tensor  # [k d]
    values: Tensor  # v [n d]
    beta: Tensor  # [n k]

    def dot(self, x: Tensor) -> Tensor:
        """Give the product of each image's x [n d] with each of its rows, [n k]."""
        return x @ self.S.T + self.beta * ((x * self.values).sum(1, keepdim=True) - x @ self.F.T)

    def square(self) -> Tensor:
        """Give the squared length of every row, [n k]."""
        # ‖S_i‖² + 2 β S_i · (v − F_i) + β² ‖v − F_i‖²
        difference = self.values.square().sum(1, keepdim=True) - 2 * self.values @ self.F.T + self.F.square().sum(1)
        across = self.values @ self.S.T - (self.S * self.F).sum(1)
        return self.S.square().sum(1) + 2 * self.beta * across + self.beta.square() * difference

    def centred(self) -> Self:
        """Take the mean over features off every row."""
        S, F, values = (part - part.mean(1, keepdim=True) for part in (self.S, self.F, self.values))
        return replace(self, S=S, F=F, values=values)

    def times(self, gain: Tensor) -> Self:
        """Multiply every row by `gain` [d], feature by feature."""
        return replace(self, S=self.S * gain, F=self.F * gain, values=self.values * gain)


@final
class Attention(nn.Module):
    """Nodes x ← x + softmax((x Q)(x K)ᵀ) x V: k class rows and one image are the nodes of every graph.

    Only the image's node differs between graphs. Let β_i be the attention that class i pays to the image; then class i
    becomes p_i + (1 − β_i) F_i + β_i x V, F_i what it would have got from the classes alone, and all that n graphs are
    asked for is a few products of [n k] matrices.
    """

    def __init__(self, d: int, scale: float) -> None:
        """Start as the identity: V = 0."""
        super().__init__()
        self.Q = nn.Parameter(scale**0.5 * torch.eye(d))
        self.K = nn.Parameter(scale**0.5 * torch.eye(d))
        self.V = nn.Parameter(torch.zeros(d, d))

    def attend(self, x: Tensor, rows: Tensor) -> tuple[Tensor, SeenRows]:
        """Give each image [n d] after it has looked at the class rows [k d], and the rows that looked back."""
        values, key = x @ self.V, x @ self.K
        among = (rows @ self.Q) @ (rows @ self.K).T  # [k k]
        F = torch.softmax(among, 1) @ (rows @ self.V)
        beta = torch.sigmoid(key @ (rows @ self.Q).T - torch.logsumexp(among, 1))  # [n k]
        query = x @ self.Q
        looks = torch.softmax(torch.cat([query @ (rows @ self.K).T, (query * key).sum(1, keepdim=True)], 1), 1)
        z = x + looks[:, :-1] @ (rows @ self.V) + looks[:, -1:] * values
        return z, SeenRows(rows + F, F, values, beta)


@final
class Calibration(nn.Module):
    """Attention, layer norm of the image and of every row, and then their scaled cosine.

    With `raw_query` the image keeps its length, which layer norm has set.
    """

    def __init__(self, d: int, scale: float, *, raw_query: bool = False, sharpness: float = 1.0) -> None:
        super().__init__()
        self.attention = Attention(d, sharpness)
        self.gain, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))  # of the layer norm
        self.scale = scale
        self.raw_query = raw_query

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        """Give the logits [n k] of images [n d] and class rows [k d]."""
        z, seen = self.attention.attend(x, rows)
        z = functional.layer_norm(z, z.shape[1:], self.gain, self.bias)
        if not self.raw_query:
            z = functional.normalize(z)
        # A row u becomes c/σ + b with c = g ∘ (u − ū); its product with z and its length follow from those of c.
        seen = seen.centred()
        sigma = (seen.square() / x.shape[1]).clamp_min(1e-12).sqrt()
        c = seen.times(self.gain)
        square = c.square() / sigma.square() + 2 * c.dot(self.bias.expand_as(z)) / sigma + self.bias.square().sum()
        return self.scale * (c.dot(z) / sigma + z @ self.bias[:, None]) / square.clamp_min(1e-12).sqrt()


@dataclass(kw_only=True)
class AttendedMeans(Centred, LargestScore):
    """A method that compares images with class means after attention; means are the only thing a session adds."""

    keeps = Keeps.MEANS | Keeps.WEIGHTS

    calibration: Calibration = state()
    means: Tensor = state()  # [k d], unit length

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes."""
        self.means = torch.cat([self.means, self.unit_means(shots, len(self.means))])

    @torch.no_grad()
    def scores(self, queries: Queries) -> Tensor:
        """Give scaled cosines after attention over the classes seen and the image."""
        device = self.calibration.gain.device
        blocks, means = torch.split(self.prepared(queries.activations), BLOCK), self.means.to(device)
        return torch.cat([self.calibration(rows.to(device), means).cpu() for rows in blocks])
