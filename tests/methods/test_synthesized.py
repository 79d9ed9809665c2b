import pytest
import torch

from masil.errors import InputError
from masil.methods import make
from masil.methods.synthesized import Subspaces, k_means


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def features() -> torch.Tensor:
    return torch.randn(60, 8, generator=seeded()) + 4 * torch.eye(3, 8)[torch.arange(60) % 3]


def test_gates_are_shares_and_choose_the_nearest_cluster_where_the_temperature_is_low(features: torch.Tensor) -> None:
    model = Subspaces(features, 3, 4, torch.eye(8), seeded())
    torch.testing.assert_close(model.gates(features).sum(1), torch.ones(60))
    model.temperature = 1e-6
    nearest = torch.cdist(features, model.centres).argmin(1)
    assert torch.equal(model.gates(features).argmax(1), nearest)
    assert float(model.gates(features).max(1).values.min()) > 0.99


def test_bases_are_orthonormal(features: torch.Tensor) -> None:
    bases = Subspaces(features, 3, 4, torch.eye(8), seeded()).bases
    torch.testing.assert_close(bases.transpose(1, 2) @ bases, torch.eye(4).expand(3, 4, 4), atol=1e-5, rtol=0)


def test_one_subspace_of_full_rank_is_one_map(features: torch.Tensor) -> None:
    to_codes = torch.randn(8, 5, generator=seeded(1))
    model = Subspaces(features, 1, 8, to_codes, seeded())
    torch.testing.assert_close(model(features).detach(), features @ to_codes, atol=1e-4, rtol=1e-4)


def test_every_cluster_has_rows_and_its_centre_is_their_mean() -> None:
    rows = torch.tensor([[0.0], [0.0], [0.0], [9.0], [9.0]])
    centres, nearest = k_means(rows, 4, seeded())
    assert sorted(centres[:, 0].tolist()) == [0.0, 9.0]
    torch.testing.assert_close(centres[nearest], rows)


def test_synthesized_features_are_of_their_class_and_new_ones_have_the_mean_of_the_shots(task, peaks) -> None:
    method, base, shots = make("synthesized-features"), peaks(range(8), 30), peaks(range(8, 10), 5)
    method.fit(base, task(8, 2))
    method.learn(shots)
    made, labels = method.synthesize(200)
    prepared = method.prepared(torch.cat([base.activations, shots.activations]))
    of = torch.cat([base.labels, shots.labels])
    means = torch.stack([prepared[of == label].mean(0) for label in range(10)])
    nearest = torch.nn.functional.cosine_similarity(made[:, None], means, dim=2).argmax(1)
    assert float((nearest == labels).float().mean()) > 0.9
    for label in (8, 9):
        spread = made[labels == label].std(0)
        # Both the mean of 200 and the shift, which rests on 50, have their standard error.
        bound = 6 * spread * (1 / 200 + 1 / 50) ** 0.5 + 1e-5
        assert bool(((made[labels == label].mean(0) - means[label]).abs() < bound).all())


def test_no_subspace_is_refused() -> None:
    with pytest.raises(InputError, match="There are 0 subspaces of rank 64, but both must be at least 1"):
        make("synthesized-features", subspaces=0)
