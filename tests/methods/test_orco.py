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


def taught(task, sessions: tuple[range, ...] = ()) -> OrCo:
    method = OrCo(hidden=32, features=16, epochs=5, session_epochs=10, session_lr=0.1)
    method.fit(clusters(range(8), 12, 1), task(8, 4))
    for number, classes in enumerate(sessions):
        method.learn(clusters(classes, 5, 2 + number))
    return method


def test_targets_are_spread_further_apart_than_drawn_at_random() -> None:
    drawn = functional.normalize(torch.randn(20, 8, generator=torch.Generator().manual_seed(0)))
    spread = spread_targets(20, 8, torch.Generator().manual_seed(0))
    torch.testing.assert_close(spread.norm(dim=1), torch.ones(20))
    assert float(crowding(spread)) < float(crowding(drawn))
    few = spread_targets(4, 8, torch.Generator().manual_seed(0), steps=3000)
    off = (few @ few.T)[~torch.eye(4, dtype=torch.bool)]
    torch.testing.assert_close(off, torch.full((12,), -1 / 3), atol=0.05, rtol=0)  # a simplex is the minimum


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
