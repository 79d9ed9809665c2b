import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.preprocessing import normalize

from masil.errors import InputError
from masil.methods import DCosine, Queries, Samples, Teen


def rows(labels: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.rand(len(labels), 6, generator=torch.Generator().manual_seed(seed))


BASE, NOVEL = torch.arange(4).repeat(5), torch.arange(4, 6).repeat(3)


@pytest.mark.parametrize("a", [0.1, 0.5])
def test_novel_means_borrow_from_the_base_classes_they_resemble(a: float, task) -> None:
    method = Teen(a=a, temperature=7.0)
    method.fit(Samples(rows(BASE, 1), labels=BASE), task())
    method.learn(Samples(rows(NOVEL, 2), labels=NOVEL))
    B = normalize(np.stack([rows(BASE, 1)[label == BASE].mean(0).numpy() for label in range(4)]))
    p = normalize(np.stack([rows(NOVEL, 2)[label == NOVEL].mean(0).numpy() for label in (4, 5)]))
    expected = (1 - a) * p + a * normalize(softmax(7 * p @ B.T, axis=1) @ B)
    np.testing.assert_allclose(method.vectors[:4], B, atol=1e-6)
    np.testing.assert_allclose(method.vectors[4:], expected, atol=1e-6)


def test_borrowing_nothing_is_the_nearest_mean(task) -> None:
    method, plain = Teen(a=0.0), DCosine()
    for each in (method, plain):
        each.fit(Samples(rows(BASE, 1), labels=BASE), task())
        each.learn(Samples(rows(NOVEL, 2), labels=NOVEL))
    asked = Queries(torch.rand(50, 6, generator=torch.Generator().manual_seed(3)))
    z, vectors = plain.geometry(asked)
    cosines = z @ vectors.T
    chosen = cosines.gather(1, method.predict(asked)[:, None])[:, 0]
    torch.testing.assert_close(chosen, cosines.amax(1), atol=1e-6, rtol=0)


def test_a_share_outside_0_to_1_is_refused() -> None:
    with pytest.raises(InputError, match=r"The share `a` of the base classes is 1.5, but must lie in \[0, 1\]"):
        Teen(a=1.5)
