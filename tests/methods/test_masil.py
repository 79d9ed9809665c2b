import pytest
import torch

from masil.errors import UnknownNameError
from masil.learner import AIMS, TRAINED_BALANCE, Masil
from masil.methods import MasilMethod, Queries, Samples

pytestmark = pytest.mark.filterwarnings("ignore::masil.concepts.NMFConvergenceWarning")


def cloud(labels: torch.Tensor, seed: int) -> torch.Tensor:
    centres = 3 * torch.rand(9, 24, generator=torch.Generator().manual_seed(0))
    noise = torch.rand(len(labels), 24, generator=torch.Generator().manual_seed(seed))
    return centres[labels] + noise


def test_the_method_is_the_learner(task) -> None:
    base, shots, asked = torch.arange(6).repeat(12), torch.arange(6, 9).repeat(4), torch.arange(9).repeat(5)
    method, learner = MasilMethod(concepts=6, alpha=0.3), Masil(backbone=None, concepts=6, alpha=0.3)
    method.fit(Samples(cloud(base, 1), labels=base), task(6, 3))
    learner.fit(cloud(base, 1), base.tolist())
    assert set(method.predict(Queries(cloud(asked, 3))).tolist()) <= set(range(6))
    method.learn(Samples(cloud(shots, 2), labels=shots))
    learner.learn(cloud(shots, 2), shots.tolist())
    predicted = method.predict(Queries(cloud(asked, 3)))
    assert predicted.dtype == torch.int64
    assert predicted.tolist() == list(learner.predict(cloud(asked, 3)))
    assert float((predicted == asked).float().mean()) > 0.9


def test_an_aim_is_recorded_with_what_was_chosen_for_it(task) -> None:
    base = torch.arange(6).repeat(12)
    method, told = MasilMethod(concepts=6, alpha=0.3, aim="accuracy"), task(6, 3)
    method.fit(Samples(cloud(base, 1), labels=base), told)
    assert method.remarks()["strength of balance"] == method.learner.balance_
    assert (method.parameters(told)["aim"], method.parameters(told)["balance"]) == ("accuracy", None)
    assert MasilMethod().parameters(told)["aim"] is None


def test_on_a_trained_backbone_an_aim_stands_for_a_balance(task) -> None:
    told = task(6, 3, adapted=True)
    for aim in AIMS:
        found = MasilMethod(aim=aim).parameters(told)
        assert (found["aim"], found["balance"]) == (None, TRAINED_BALANCE[aim])
    assert MasilMethod().parameters(told)["balance"] == TRAINED_BALANCE["accuracy"]
    assert MasilMethod(balance=0.1).parameters(told)["balance"] == 0.1
    with pytest.raises(UnknownNameError, match="no aim called 'acuracy'; did you mean 'accuracy'"):
        MasilMethod(aim="acuracy").parameters(told)
