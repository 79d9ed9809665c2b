"""A session that diverges is noticed, put back and played again more slowly."""

import pytest
import torch

from masil.methods import Lucir, NcFscil, Samples, make
from masil.methods.descent import descend_steadily

TARGET = torch.tensor([3.0, -2.0])


def quadratic(w: torch.Tensor, generator: torch.Generator, steps: int = 50):
    """Give the loss ‖w − target‖² and gradient descent on it with a little noise, which diverges at rates above 1."""

    def train(rate: float) -> None:
        for _ in range(steps):
            w.sub_(rate * (2 * (w - TARGET) + 1e-3 * torch.randn(2, generator=generator)))

    return lambda: (w - TARGET).square().sum(), train


def test_a_rate_that_diverges_is_halved_until_the_loss_falls() -> None:
    w, generator = torch.zeros(2), torch.Generator().manual_seed(0)
    loss, train = quadratic(w, generator)
    held = descend_steadily([w], train, loss, 6.0, generator)
    assert held == 0.75  # at rates above 1 every step makes the error larger
    assert float(loss()) < 1e-3
    alone, again = torch.zeros(2), torch.Generator().manual_seed(0)
    quadratic(alone, again)[1](held)
    assert torch.equal(w, alone)  # as if it had been the only one


def test_a_rate_at_which_the_loss_falls_stays() -> None:
    w, generator = torch.zeros(2), torch.Generator().manual_seed(0)
    loss, train = quadratic(w, generator)
    assert descend_steadily([w], train, loss, 0.1, generator) == 0.1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_where_no_rate_holds_nothing_is_learnt(bad: float) -> None:
    w, generator = torch.ones(2), torch.Generator().manual_seed(0)
    losses = iter([torch.tensor(1.0)])
    held = descend_steadily([w], lambda rate: w.mul_(rate), lambda: next(losses, torch.tensor(bad)), 1.0, generator)
    assert held == 0
    assert torch.equal(w, torch.ones(2))


def clusters(classes: range, each: int, seed: int) -> Samples:
    centres = 3 * torch.rand(12, 16, generator=torch.Generator().manual_seed(0)).square()
    labels = torch.tensor(classes).repeat(each)
    noise = 0.2 * torch.randn(len(labels), 16, generator=torch.Generator().manual_seed(seed))
    return Samples((centres[labels] + noise).relu(), labels=labels)


@pytest.mark.parametrize("method", [Lucir(lr=1e6), NcFscil(session_lr=1e4)], ids=lambda method: method.name)
def test_a_method_at_an_absurd_rate_says_that_it_went_more_slowly(method, task) -> None:
    method.fit(clusters(range(8), 20, 1), task(8, 4))
    base = clusters(range(8), 10, 3)
    before = (method.predict(base) == base.labels).double().mean()
    method.learn(clusters(range(8, 12), 5, 2))
    assert float((method.predict(base) == base.labels).double().mean()) > float(before) - 0.5
    (rate,) = method.remarks()["diverged, so played at a lower rate"].values()
    assert rate < 1e4


def test_a_loss_that_draws_is_judged_by_the_same_draws_and_takes_none_from_training() -> None:
    generator, w, judged, trained = torch.Generator().manual_seed(0), torch.ones(1), [], []

    def loss() -> torch.Tensor:
        judged.append(torch.rand(1, generator=generator))
        return w.abs().sum()

    def train(rate: float) -> None:
        trained.append(torch.rand(1, generator=generator))
        w.mul_(rate)

    assert descend_steadily([w], train, loss, 4.0, generator) == 1.0
    assert torch.stack([*judged, *trained]).unique().numel() == 1
    assert float(torch.rand(1, generator=generator)) != float(trained[0])  # and goes on after training's


@pytest.mark.parametrize(
    ("name", "absurd"),
    [
        ("synthesized-features", {"session_lr": 1e6}),
        ("c-fscil", {"lr": 1e6, "episodes": 0}),
    ],
)
def test_every_session_that_descends_is_watched(name: str, absurd: dict[str, float], task) -> None:
    method = make(name, **absurd)
    method.fit(clusters(range(8), 20, 1), task(8, 4))
    method.learn(clusters(range(8, 12), 5, 2))
    assert min(method.remarks()["diverged, so played at a lower rate"].values()) < 1e6
    assert bool(method.scores(clusters(range(12), 3, 3)).isfinite().all())


@pytest.mark.parametrize(
    ("name", "absurd"),
    [
        ("idlvq", {"lr": 1e6}),
        ("mgsvf", {"lr": 1e6}),
        ("metafscil", {"lr": 1e9, "sequences": 0}),
        ("topic", {"row_lr": 1e6, "nodes": 10}),
        ("deepinv", {"gentle": 1e6, "rounds": 2, "each": 2, "epochs": 10}),
        ("data-free-replay", {"gentle": 1e6, "rounds": 1, "batch": 8, "epochs": 10}),
    ],
)
@pytest.mark.usefixtures("one_thread")
def test_every_session_that_trains_the_network_is_watched(
    name: str, absurd: dict[str, float], task, trained_images, trained_backbone
) -> None:
    method = make(name, **absurd)
    method.fit(trained_images(range(5), 8, 1), task(5, 2, backbone=trained_backbone))
    method.learn(trained_images(range(5, 7), 5, 2))
    assert min(method.remarks()["diverged, so played at a lower rate"].values()) < 1e6
    assert bool(method.scores(trained_images(range(7), 3, 3)).isfinite().all())
