import pytest
import torch

from masil.errors import InputError
from masil.learner import Masil
from masil.methods import MasilMethod


def cloud(labels: torch.Tensor, seed: int) -> torch.Tensor:
    centres = 3 * torch.rand(9, 24, generator=torch.Generator().manual_seed(0))
    noise = torch.rand(len(labels), 24, generator=torch.Generator().manual_seed(seed))
    return centres[labels] + noise


@pytest.mark.filterwarnings("ignore::masil.concepts.NMFConvergenceWarning")
def test_the_method_is_the_learner() -> None:
    base, shots, asked = torch.arange(6).repeat(12), torch.arange(6, 9).repeat(4), torch.arange(9).repeat(5)
    method, learner = MasilMethod(concepts=6, alpha=0.3), Masil(backbone=None, concepts=6, alpha=0.3)
    method.fit(cloud(base, 1), base)
    learner.fit(cloud(base, 1), base.tolist())
    assert set(method.predict(cloud(asked, 3)).tolist()) <= set(range(6))
    method.learn(cloud(shots, 2), shots)
    learner.learn(cloud(shots, 2), shots.tolist())
    predicted = method.predict(cloud(asked, 3))
    assert predicted.dtype == torch.int64
    assert predicted.tolist() == list(learner.predict(cloud(asked, 3)))
    assert float((predicted == asked).float().mean()) > 0.9


def test_predicting_before_fitting_is_refused() -> None:
    with pytest.raises(InputError, match="Nothing has been taught yet; call `fit`"):
        MasilMethod().predict(torch.rand(2, 24))
