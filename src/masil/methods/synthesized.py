"""Our reading of synthesized features on a mixture of subspaces (Cheraghian et al. 2021).

Features are described by several subspaces, each with a map to the space of class codes. A variational autoencoder that
knows the codes makes features of old classes again, on which the maps are tuned beside the shots.
"""

import copy
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.collapse import class_means, cosine_cross_entropy, drawn_linear
from masil.errors import InputError
from masil.methods.descent import Descends, take_step
from masil.methods.method import Centred, Keeps, NearestVector, Queries, Samples, Task, state
from masil.training import minimise_by_sgd

HIDDEN, LATENT = 256, 64  # of the autoencoder
BATCH = 128


@final
class Subspaces(nn.Module):
    """z(x) = Σ_s g_s(x) (A_s U_sᵀ (x − c_s) + b_s), the gates g = softmax_s(−‖x − c_s‖²/T).

    c_s are centres of clusters of the features, U_s [d r] the directions in which a cluster is spread most. The maps
    start so that z is x, as far as the subspaces hold it, projected to the codes: then the nearest class mean decides.
    """

    centres: Tensor  # c [s d]
    bases: Tensor  # U [s d r]

    def __init__(self, x: Tensor, count: int, rank: int, to_codes: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        centres, nearest = k_means(x, count, generator)
        parts = [x[nearest == place] - centre for place, centre in enumerate(centres)]
        rank = min(rank, x.shape[1])
        # A cluster with fewer rows than the rank is completed by directions in which it has no spread.
        spreads = [torch.linalg.svd(part, full_matrices=len(part) < rank)[2] for part in parts]
        bases = torch.stack([directions[:rank].T for directions in spreads])
        own = (x - centres[nearest]).square().sum(1).mean()
        self.register_buffer("centres", centres)
        self.register_buffer("bases", bases)
        self.temperature = float(own.clamp_min(1e-12))
        self.maps = nn.Parameter(bases.transpose(1, 2) @ to_codes)  # A [s r m]
        self.offsets = nn.Parameter(centres @ to_codes)  # b [s m]

    def gates(self, x: Tensor) -> Tensor:
        """Give the share of each subspace, [n s]."""
        return torch.softmax(-torch.cdist(x, self.centres).square() / self.temperature, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Give z [n m]."""
        inside = torch.einsum("nsd,sdr->nsr", x[:, None] - self.centres, self.bases)
        return torch.einsum("ns,nsm->nm", self.gates(x), torch.einsum("nsr,srm->nsm", inside, self.maps) + self.offsets)


@final
class Autoencoder(nn.Module):
    """A variational autoencoder of features that is told the code of their class; features are in units of `unit`."""

    def __init__(self, d: int, m: int, unit: float, generator: torch.Generator) -> None:
        super().__init__()
        self.unit = unit
        widths = (d + m, HIDDEN, 2 * LATENT), (LATENT + m, HIDDEN, d)
        self.encoder, self.decoder = (
            nn.Sequential(
                drawn_linear(first, hidden, True, generator), nn.ReLU(), drawn_linear(hidden, last, True, generator)
            )
            for first, hidden, last in widths
        )

    def loss(self, x: Tensor, codes: Tensor, noise: Tensor) -> Tensor:
        """Give ½ ‖x − x̂‖² + KL(q(z | x, code), N(0, 1)), the mean over rows."""
        x = x / self.unit
        mean, log_variance = self.encoder(torch.cat([x, codes], 1)).chunk(2, 1)
        z = mean + torch.exp(0.5 * log_variance) * noise
        error = 0.5 * (self.decoder(torch.cat([z, codes], 1)) - x).square().sum(1)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)
        total: Tensor = error + divergence
        return total.mean()

    @torch.no_grad()
    def decode(self, codes: Tensor, generator: torch.Generator) -> Tensor:
        """Draw a feature for every code."""
        noise = torch.randn(len(codes), LATENT, generator=generator)
        decoded: Tensor = self.decoder(torch.cat([noise, codes], 1)) * self.unit
        return decoded


@final
@dataclass(kw_only=True)
class SynthesizedFeatures(Descends, Centred, NearestVector):
    """Compare z(x) with class codes; a session tunes the maps on shots and on synthesized features of all classes."""

    name = "synthesized-features"
    title = "our reading of synthesized features (Cheraghian 2021)"
    citation = (
        "Cheraghian et al., Synthesized Feature based Few-Shot Class-Incremental Learning on a Mixture of Subspaces, "
        "ICCV 2021"
    )
    differs = (
        "There is no code; clusters, ranks, rates and the autoencoder are ours. Word vectors of class names, which a "
        "method is not told, are replaced by the principal components of class means: the semantic side is gone."
    )
    trains = "head"
    counts = ("codes", "synthesized")
    keeps = Keeps.MEANS | Keeps.GENERATOR | Keeps.WEIGHTS

    subspaces: int = 3
    rank: int = 64
    codes: int = 300  # features of a class code, as word vectors have
    synthesized: int = 50  # features of each class in a session
    scale: float = 16.0
    epochs: int = 10
    lr: float = 0.01
    session_steps: int = 100
    session_lr: float = 0.01
    distillation: float = 1.0
    generator_steps: int = 500
    to_codes: Tensor = state()  # [d m]
    model: Subspaces = state()
    autoencoder: Autoencoder = state()
    shifts: Tensor = state()  # [k d], what is added to decoded features of a class: 0 for base classes

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subspaces < 1 or self.rank < 1:
            raise InputError(f"There are {self.subspaces} subspaces of rank {self.rank}, but both must be at least 1.")

    def fit(self, base: Samples, task: Task) -> None:
        """Find the subspaces, train their maps by cross-entropy, and then the autoencoder."""
        self.choose(base, task)
        self.find_centre(base, centred=not task.adapted)
        x, labels = self.prepared(base.activations), base.labels
        means = class_means(x, labels)
        self.to_codes = torch.linalg.svd(x, full_matrices=False)[2][: self.codes].T
        self.vectors = functional.normalize(means @ self.to_codes)
        self.model = Subspaces(x, self.subspaces, self.rank, self.to_codes, generator=self.generator)
        steps = self.epochs * -(-len(x) // BATCH)

        def loss(rows: Tensor) -> Tensor:
            return cosine_cross_entropy(self.model(x[rows]), self.vectors, labels[rows], self.scale)

        minimise_by_sgd(
            self.model.parameters(), loss, len(x), steps=steps, batch=BATCH, rate=self.lr, generator=self.generator
        )
        within = float((x - means[labels]).square().mean().sqrt().clamp_min(1e-12))
        self.autoencoder = Autoencoder(x.shape[1], self.vectors.shape[1], within, self.generator)
        self._train_autoencoder(x, labels)
        self.shifts = torch.zeros_like(means)

    def learn(self, shots: Samples) -> None:
        """Tune the maps on shots and synthesized features; what the old maps said of old classes is distilled."""
        x, known = self.prepared(shots.activations), len(self.vectors)
        means = class_means(x, shots.labels, known)
        self.vectors = torch.cat([self.vectors, functional.normalize(means @ self.to_codes)])
        each = torch.arange(known, len(self.vectors)).repeat_interleave(self.synthesized)
        decoded = self.autoencoder.decode(self.vectors[each], self.generator)
        self.shifts = torch.cat([self.shifts, means - class_means(decoded, each, known)])
        made, made_labels = self.synthesize(self.synthesized)
        rows, labels = torch.cat([x, made]), torch.cat([shots.labels, made_labels])
        before = copy.deepcopy(self.model)

        def loss(chosen: Tensor) -> Tensor:
            z, old = self.model(rows[chosen]), self.vectors[:known]
            said, says = (self.scale * functional.normalize(part) @ old.T for part in (before(rows[chosen]), z))
            kept = functional.kl_div(says.log_softmax(1), said.log_softmax(1), reduction="batchmean", log_target=True)
            return cosine_cross_entropy(z, self.vectors, labels[chosen], self.scale) + self.distillation * kept

        learnt = [*self.model.parameters()]

        def train(rate: float) -> None:
            minimise_by_sgd(
                learnt, loss, len(rows), steps=self.session_steps, batch=BATCH, rate=rate, generator=self.generator
            )

        self.steadily(learnt, train, lambda: loss(torch.arange(len(rows))), self.session_lr)

    def synthesize(self, each: int) -> tuple[Tensor, Tensor]:
        """Make so many features of each class taught so far; give them with their labels."""
        labels = torch.arange(len(self.vectors)).repeat_interleave(each)
        return self.autoencoder.decode(self.vectors[labels], self.generator) + self.shifts[labels], labels

    def embed(self, queries: Queries) -> Tensor:
        """Give z."""
        z: Tensor = self.model(self.prepared(queries.activations))
        return z

    def _train_autoencoder(self, x: Tensor, labels: Tensor) -> None:
        optimiser = torch.optim.Adam(self.autoencoder.parameters(), 1e-3)
        for _ in range(self.generator_steps):
            rows = torch.randint(len(x), (BATCH,), generator=self.generator)
            noise = torch.randn(BATCH, LATENT, generator=self.generator)
            take_step(optimiser, self.autoencoder.loss(x[rows], self.vectors[labels[rows]], noise))
        self.autoencoder.requires_grad_(False)


def k_means(x: Tensor, count: int, generator: torch.Generator, rounds: int = 20) -> tuple[Tensor, Tensor]:
    """Give centres [s d] of clusters of the rows, and for each row its cluster; every cluster has a row."""
    centres = x[torch.randperm(len(x), generator=generator)[:count]]
    for _ in range(rounds):
        nearest = torch.cdist(x, centres).argmin(1)
        nearest = torch.unique(nearest, return_inverse=True)[1]
        centres = class_means(x, nearest)
    return centres, nearest
