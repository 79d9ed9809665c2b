import pytest
import torch

from masil.errors import InputError
from masil.methods.taught import check_features, check_total, class_means, new_classes, taught


def test_a_session_is_counted_and_averaged() -> None:
    activations, labels = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]]), torch.tensor([4, 4, 3])
    assert new_classes(activations, labels, known=3) == 2
    assert class_means(activations, labels, known=3).tolist() == [[0.0, 5.0], [2.0, 0.0]]


@pytest.mark.parametrize(
    ("shape", "labels", "sentence"),
    [
        ((2, 3), [3, 1], "Class 1 has been taught before; 2 classes are known"),
        ((2, 3), [2, 4], "The next class is 3, but there is no image of it; classes come in order"),
        ((2, 3), [2], r"but they have the shapes \[2, 3\] and \[1\]"),
        ((0, 3), [], r"but they have the shapes \[0, 3\] and \[0\]"),
        ((2,), [2, 3], r"but they have the shapes \[2\] and \[2\]"),
    ],
)
def test_a_session_that_does_not_fit_is_refused(shape: tuple[int, ...], labels: list[int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        new_classes(torch.zeros(shape), torch.tensor(labels, dtype=torch.int64), known=2)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(InputError, match="Nothing has been taught yet; call `fit`"):
        taught(None)
    with pytest.raises(InputError, match=r"shape \[2, 5\], but the base session had 4 features; were they computed"):
        check_features(torch.zeros(2, 5), 4)
    with pytest.raises(InputError, match="must know how many classes will ever come; give it `total`"):
        check_total(None, 3)
    with pytest.raises(InputError, match="There is room for 4 classes in all, but there are 5 now"):
        check_total(4, 5)
