from dataclasses import replace

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch.nn import functional

from masil.methods import OrCo, Samples
from masil.methods.orco import crowding, matched, spread_targets


def clusters(classes: range, each: int, seed: int) -> Samples:
    centres = 3 * torch.rand(12, 16, generator=torch.Generator().manual_seed(0)).square()
    labels = torch.tensor(classes).repeat(each)
    noise = 0.2 * torch.randn(len(labels), 16, generator=torch.Generator().manual_seed(seed))
    return Samples((centres[labels] + noise).relu(), labels=labels)


def many(classes: range, each: int, seed: int) -> Samples:
    """Give rows of forty classes that share a large common part, as activations do."""
    centres = torch.rand(44, 24, generator=torch.Generator().manual_seed(0)) + 1
    labels = torch.tensor(classes).repeat(each)
    noise = 0.1 * torch.randn(len(labels), 24, generator=torch.Generator().manual_seed(seed))
    return Samples((centres[labels] + noise).relu(), labels=labels)


def taught(task, sessions: tuple[range, ...] = ()) -> OrCo:
    method = OrCo(hidden=32, features=16, epochs=5, session_epochs=10, session_lr=0.01, base_weight=0.6)
    method.fit(clusters(range(8), 12, 1), task(8, 4))
    for number, classes in enumerate(sessions):
        method.learn(clusters(classes, 5, 2 + number))
    return method


def test_targets_are_spread_further_apart_than_drawn_at_random() -> None:
    drawn = functional.normalize(torch.randn(20, 8, generator=torch.Generator().manual_seed(0)))
    spread = spread_targets(20, 8, torch.Generator().manual_seed(0))
    torch.testing.assert_close(spread.norm(dim=1), torch.ones(20))
    assert float(crowding(spread)) < float(crowding(drawn))


@pytest.mark.parametrize(("count", "features"), [(4, 8), (40, 64)])
def test_targets_that_have_room_become_a_simplex(count: int, features: int) -> None:
    few = spread_targets(count, features, torch.Generator().manual_seed(0))
    off = (few @ few.T)[~torch.eye(count, dtype=torch.bool)]
    torch.testing.assert_close(off, torch.full_like(off, -1 / (count - 1)), atol=1e-3, rtol=0)


def test_classes_and_targets_are_matched_one_to_one_with_the_largest_sum() -> None:
    cosines = torch.rand(4, 7, generator=torch.Generator().manual_seed(0))
    given = matched(cosines)
    assert len(set(given.tolist())) == 4
    rows, columns = linear_sum_assignment(-cosines.numpy())
    assert float(cosines[range(4), given].sum()) == pytest.approx(float(cosines[rows, columns].sum()))


def test_targets_stay_and_each_session_starts_from_the_projector_of_the_base_session(task) -> None:
    method = taught(task)
    start = {name: value.clone() for name, value in method.start.state_dict().items()}
    given = method.vectors.clone()
    method.learn(clusters(range(8, 10), 5, 2))
    first = method.vectors.clone()
    method.learn(clusters(range(10, 12), 5, 3))
    assert torch.equal(method.vectors[:8], given)
    assert torch.equal(method.vectors[:10], first)
    assert len(method.vectors.unique(dim=0)) == 12
    assert all(torch.equal(value, start[name]) for name, value in method.start.state_dict().items())
    assert not torch.equal(method.projector[0].weight, method.start[0].weight)


def test_five_images_of_every_base_class_and_all_shots_are_kept(task) -> None:
    method = taught(task, (range(8, 10), range(10, 12)))
    assert torch.bincount(method.memory.labels).tolist() == [5] * 12


def test_few_new_classes_beside_many_old_ones_are_drawn_to_their_targets(task) -> None:
    method = OrCo(hidden=128, features=64, epochs=40, session_epochs=40, session_lr=0.01, base_weight=0.0)
    method.fit(many(range(40), 12, 1), task(40, 4))
    method.learn(many(range(40, 42), 5, 2))
    method.learn(many(range(42, 44), 5, 3))
    tests = many(range(40, 44), 10, 4)
    own = method.scores(tests)[range(len(tests)), tests.labels]
    assert float(own.mean()) > 0.7


def test_the_pull_of_novel_images_does_not_depend_on_how_many_base_images_are_beside_them(task) -> None:
    method = taught(task, (range(8, 10),))
    method.base_weight = 0.0
    z = functional.normalize(torch.randn(9, 16, generator=torch.Generator().manual_seed(0)))
    labels = torch.tensor([8, 9, 0, 1, 2, 3, 4, 5, 6])
    alone = method._pull(z[:2], labels[:2], labels[:2] >= 8)
    torch.testing.assert_close(method._pull(z, labels, labels >= 8), alone)
    errors = -torch.log_softmax(z[:2] @ method.vectors.T, 1)[[0, 1], [8, 9]]
    torch.testing.assert_close(alone, 0.5 * errors.mean())


def test_rates_are_rehearsed_in_one_session_with_all_new_classes(task, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    learn = OrCo.learn

    def noted(self: OrCo, shots: Samples) -> None:
        seen.append(len(shots.labels.unique()))
        learn(self, shots)

    monkeypatch.setattr(OrCo, "learn", noted)
    method = OrCo(hidden=16, features=16, epochs=1, session_epochs=1, base_weight=0.0)
    told = task(8, 2)
    method.fit(clusters(range(8), 12, 1), replace(told, protocol=replace(told.protocol, sessions=4)))
    assert seen == [4] * 6  # half of the classes are novel; three rates, two rehearsals
    assert method.value("session_lr") in OrCo.tried["session_lr"]
