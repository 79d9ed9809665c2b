import pytest
import torch

from masil.concepts import checks
from masil.concepts.checks import blocks, check_activations, check_values
from masil.errors import InputError


def test_blocks_are_consecutive_views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "BLOCK_ROWS", 4)
    rows = torch.arange(20.0).reshape(10, 2)
    parts = list(blocks(rows))
    assert [start for start, _ in parts] == [0, 4, 8]
    assert torch.equal(torch.cat([part for _, part in parts]), rows)
    assert parts[1][1].data_ptr() == rows[4:].data_ptr()
    assert list(blocks(rows[:0])) == []


def test_every_block_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "BLOCK_ROWS", 4)
    rows = torch.rand(10, 2, generator=torch.Generator().manual_seed(0))
    check_activations(rows, 2)
    rows[9, 1] = -0.25
    with pytest.raises(InputError, match="activations go down to -0.25"):
        check_activations(rows)


def test_values_must_be_finite_and_nothing_is_nothing_to_refuse() -> None:
    for value in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(InputError, match="concepts have NaN or infinite values in 1 of 3 rows"):
            check_values("concepts", torch.tensor([[1.0], [value], [2.0]]))
    check_values("activations", torch.empty(0, 5))
    check_activations(torch.empty(0, 5), 5)
