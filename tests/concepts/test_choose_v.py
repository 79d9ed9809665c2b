import importlib

import pytest
import torch
from torch import Tensor

from masil.concepts import NMFResult, NNLSResult, nmf, nnls
from masil.concepts.choose_v import _held_out_error, _within_one_standard_error, choose_v
from masil.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::masil.concepts.nmf.NMFConvergenceWarning")


def noisy(n: int, d: int, v: int, noise: float, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    P = torch.rand(n, v, generator=generator) * (torch.rand(n, v, generator=generator) < 0.5)
    Q = torch.rand(v, d, generator=generator) * (torch.rand(v, d, generator=generator) < 0.5)
    return (P @ Q + noise * torch.randn(n, d, generator=generator)).relu()


def test_the_planted_number_of_concepts_is_chosen() -> None:
    chosen = choose_v(noisy(300, 40, 5, 0.1), [12, 2, 5, 8], seed=0)
    assert chosen.v == 5
    assert chosen.candidates == (2, 5, 8, 12)
    assert chosen.errors.shape == (3, 4)
    mean = chosen.errors.mean(0)
    assert mean[0] > mean[1]
    assert mean[3] > mean[1]  # more concepts predict held-out features worse, though they fit the rest better


def test_rows_that_are_predicted_were_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("masil.concepts.choose_v")
    fitted, predicted = [], []

    def watching_nmf(A: Tensor, v: int, **options: object) -> NMFResult:
        fitted.append({tuple(row) for row in A.tolist()})
        return nmf(A, v, **options)

    def watching_nnls(A: Tensor, Q: Tensor) -> NNLSResult:
        predicted.append({tuple(row) for row in A.tolist()})
        return nnls(A, Q)

    monkeypatch.setattr(module, "nmf", watching_nmf)
    monkeypatch.setattr(module, "nnls", watching_nnls)
    A = torch.arange(8)[:, None].expand(8, 6).float() + 1  # rows that are known by any of their features
    choose_v(A, [1], row_folds=2, feature_folds=3)
    values = [{row[0] for row in rows} for rows in fitted], [{row[0] for row in rows} for rows in predicted]
    assert len(values[0]) == 2
    assert len(values[1]) == 6
    for i, held_out in enumerate(values[1]):
        assert held_out | values[0][i // 3] == set(range(1, 9))
        assert not held_out & values[0][i // 3]


@pytest.mark.usefixtures("one_thread")
def test_the_seed_decides() -> None:
    A = noisy(60, 12, 3, 0.1)
    first, same, other = (choose_v(A, [2, 3], seed=s).errors for s in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_the_smallest_within_one_standard_error_of_the_best_wins() -> None:
    best = torch.tensor([1.0, 1.2, 1.4])
    close = best + torch.tensor([-0.1, 0.1, 0.2])  # mean .067, standard error .088
    far = best + torch.tensor([0.1, 0.1, 0.11])  # farther than its small standard error, though errors vary more
    assert _within_one_standard_error(torch.stack([far, close, best, best + 1], 1)) == 1
    assert _within_one_standard_error(torch.stack([best, best], 1)) == 0
    assert _within_one_standard_error(torch.stack([best + 1, best], 1)) == 1


def test_a_concept_that_other_features_hardly_show_is_not_guessed_from_them() -> None:
    Q = torch.tensor([[1.0, 1e-6, 0.0, 0.0], [0.0, 0.0, 0.6, 0.8]])
    A = torch.rand(20, 4, generator=torch.Generator().manual_seed(0))
    folds = [torch.tensor([0, 2]), torch.tensor([1, 3])]
    assert _held_out_error(A, Q, folds) < 2


def test_silent_activations_are_predicted_by_anything() -> None:
    assert choose_v(torch.zeros(12, 8), [1, 2]).v == 1


@pytest.mark.parametrize("candidates", [[], [0, 2], [2, 9]])
def test_candidates_that_cannot_be_are_refused(candidates: list[int]) -> None:
    with pytest.raises(InputError, match=r"Candidates for v must lie in 1 to 6 for activations \[9 8\], but are"):
        choose_v(torch.rand(9, 8), candidates)


def test_folds_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match=r"\[9 3\] cannot be held out in 3 folds of rows and 4 of features"):
        choose_v(torch.rand(9, 3), [1])
    with pytest.raises(InputError, match="go down to"):
        choose_v(-torch.rand(9, 8), [1])
