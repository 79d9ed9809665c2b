import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from masil.errors import InputError
from masil.methods import DCosine


def cloud(k: int, each: int, d: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(k).repeat(each)
    centres = torch.rand(k, d, generator=generator)
    return centres[labels] + 0.2 * torch.rand(len(labels), d, generator=generator), labels


def test_predictions_are_the_largest_cosine_to_a_class_mean() -> None:
    activations, labels = cloud(7, 9, 5, seed=1)
    asked, _ = cloud(7, 3, 5, seed=2)
    method = DCosine()
    method.fit(activations[labels < 4], labels[labels < 4])
    method.learn(activations[labels >= 4], labels[labels >= 4])
    means = torch.stack([activations[labels == label].mean(0) for label in range(7)])
    assert method.predict(asked).tolist() == cosine_similarity(asked, means).argmax(1).tolist()


def test_fit_starts_afresh() -> None:
    activations, labels = cloud(3, 4, 5, seed=1)
    method = DCosine()
    method.fit(activations, labels)
    method.fit(activations, labels)
    assert method.means_ is not None
    assert len(method.means_) == 3


def test_sessions_out_of_order_are_refused() -> None:
    activations, labels = cloud(4, 2, 5, seed=1)
    method = DCosine()
    with pytest.raises(InputError, match="Nothing has been taught yet; call `fit`"):
        method.predict(activations)
    method.fit(activations, labels)
    with pytest.raises(InputError, match="Class 0 has been taught before; 4 classes are known"):
        method.learn(activations, labels)
    with pytest.raises(InputError, match="The next class is 4, but there is no image of it"):
        method.learn(activations[labels == 1], labels[labels == 1] + 4)
