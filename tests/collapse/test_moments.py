import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.collapse import moments
from masil.collapse.moments import ClassMoments, class_means, double_class_means
from masil.errors import InputError


def clouds(n=50, d=4, k=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.arange(k), torch.randint(0, k, (n - k,), generator=generator)])
    return torch.randn(n, d, generator=generator, dtype=torch.float64) + labels[:, None], labels


@settings(deadline=None)
@given(n=st.integers(6, 60), d=st.integers(1, 6), cut=st.integers(1, 59), seed=st.integers(0, 99))
def test_sums_over_blocks_give_means_and_the_scatter_within_classes(n, d, cut, seed):
    x, labels = clouds(n, d, 5, seed)
    streamed = ClassMoments(5, d)
    for rows, classes in ((x[:cut], labels[:cut]), (x[cut:], labels[cut:])):
        if len(rows):
            streamed.add(rows, classes)
    means = torch.stack([x[labels == c].mean(0) for c in range(5)])
    residuals = x - means[labels]
    torch.testing.assert_close(streamed.means(), means)
    torch.testing.assert_close(double_class_means(x, labels, 5), means)
    assert streamed.freedom() == n - 5
    torch.testing.assert_close(streamed.within(), residuals.T @ residuals / (n - 5), atol=1e-9, rtol=1e-9)


def test_classes_can_be_summed_apart_and_joined():
    x, labels = clouds()
    whole, even, odd = ClassMoments(5, 4), ClassMoments(3, 4), ClassMoments(2, 4)
    whole.add(x, labels)
    for parity, half in enumerate((even, odd)):
        half.add(x[labels % 2 == parity], labels[labels % 2 == parity] // 2)
    joined = even.joined(odd)
    torch.testing.assert_close(joined.within(), whole.within())
    torch.testing.assert_close(joined.means(), whole.means()[[0, 2, 4, 1, 3]])
    assert joined.freedom() == whole.freedom()


def test_blocks_are_small_and_double(monkeypatch):
    monkeypatch.setattr(moments, "BLOCK", 7)
    x, labels = clouds()
    pieces = list(moments.blocks(x.half(), labels.int()))
    assert [len(rows) for rows, _ in pieces] == [7] * 7 + [1]
    assert all(rows.dtype == torch.float64 and classes.dtype == torch.int64 for rows, classes in pieces)
    means = torch.stack([x[labels == c].mean(0) for c in range(5)])
    torch.testing.assert_close(double_class_means(x, labels, 5), means)


def test_labels_outside_the_classes_are_refused():
    x, labels = clouds()
    with pytest.raises(InputError, match="Labels run from -1 to 3, but must number 5 classes from 0 to 4"):
        double_class_means(x, labels - 1, 5)
    with pytest.raises(InputError, match=r"shapes \[50, 4\] and \[50, 1\]"):
        double_class_means(x, labels[:, None], 5)


def test_class_means_begin_at_the_first_class():
    rows, labels = torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([1, 0, 1])
    assert class_means(rows, labels).tolist() == [[3.0], [3.0]]
    assert class_means(rows, labels + 7, 7).tolist() == [[3.0], [3.0]]
