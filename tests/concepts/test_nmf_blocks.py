import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from masil.concepts import NMFConvergenceWarning, NMFResult, nmf
from masil.concepts.nmf_blocks import (
    ArrayBlocks,
    Blocks,
    as_blocks,
    block_length,
    block_rows,
    block_starts,
    iterate,
    survey,
)
from masil.errors import InputError

ROWS = (torch.randn(700, 16, generator=torch.Generator().manual_seed(0)).relu() * 4).round() / 4


class Pieces(Blocks):
    """A source of the user's own."""

    features, dtype = 16, torch.float64

    def __len__(self) -> int:
        return len(ROWS)

    def read(self, start: int, stop: int) -> Tensor:
        return ROWS[start:stop].double()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("masil.concepts.nmf_blocks.BLOCK_ENTRIES", 256 * 16)  # 256 rows: two blocks and a rest


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.save(tmp_path / "rows.npy", ROWS.numpy())
    return tmp_path / "rows.npy"


def fit(A: Tensor | np.ndarray | Blocks, *, coefficients: bool = True) -> NMFResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NMFConvergenceWarning)
        return nmf(A, 5, max_iterations=25, coefficients=coefficients)


def test_all_sources_of_the_same_rows_have_the_same_factors(file: Path) -> None:
    # In float64, so that what alignment in memory does to rounding stays far below what another row would do.
    wide = file.with_name("wide.npy")
    np.save(wide, ROWS.double().numpy())
    expected = fit(ROWS.double())
    assert expected.coefficients is not None
    for source in (ROWS.double().numpy(), np.load(wide, mmap_mode="r"), np.load(wide, mmap_mode="c"), Pieces()):
        assert torch.equal(torch.cat(list(iterate(as_blocks(source)))), ROWS.double())
        found = fit(source)
        assert found.coefficients is not None
        assert found.objective[-1] == pytest.approx(expected.objective[-1], rel=1e-9)
        torch.testing.assert_close(found.concepts, expected.concepts, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.coefficients, expected.coefficients, rtol=0, atol=1e-6)


def test_blocks_change_rounding_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> NMFResult:
        return nmf(ROWS.double(), 5, init=ROWS[:5].double() + 0.1, max_iterations=500)

    found = run()
    monkeypatch.setattr("masil.concepts.nmf_blocks.BLOCK_ENTRIES", 1 << 20)
    whole = run()
    assert found.objective == pytest.approx(whole.objective, rel=1e-9)
    torch.testing.assert_close(found.concepts, whole.concepts, atol=1e-6, rtol=0)


def test_coefficients_that_are_not_held_cost_a_thousandth_of_the_objective_at_most(file: Path) -> None:
    held, passing = (fit(np.load(file, mmap_mode="r"), coefficients=keep) for keep in (True, False))
    assert passing.coefficients is None
    assert passing.objective[-1] == pytest.approx(held.objective[-1], rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype: torch.dtype) -> None:
    found = fit(ROWS.to(dtype))  # quarters up to 16 are exact in both
    assert found.concepts.dtype == torch.float32
    assert torch.equal(torch.cat(list(iterate(as_blocks(ROWS.to(dtype))))).float(), ROWS)
    expected = fit(ROWS)
    assert found.objective[-1] == pytest.approx(expected.objective[-1], rel=1e-3)
    torch.testing.assert_close(found.concepts, expected.concepts, rtol=0, atol=1e-2)  # rounding, grown in 25 iterations


@pytest.mark.parametrize("cut", [slice(None), slice(100, 500), slice(3, None)])
def test_mapped_rows_are_read_from_the_right_place_of_the_file(file: Path, cut: slice) -> None:
    mapped = np.load(file, mmap_mode="r")[cut]
    blocks = ArrayBlocks(mapped)
    assert blocks._file is not None
    assert torch.equal(blocks.read(10, 40), ROWS[cut][10:40])
    assert torch.equal(torch.cat(list(iterate(blocks))), ROWS[cut])


def test_rows_that_do_not_lie_in_a_file_as_they_are_go_through_memory(file: Path) -> None:
    mapped = np.load(file, mmap_mode="c")
    mapped[0] = 7  # changes the memory, not the file
    for array in (mapped, np.load(file, mmap_mode="r")[::2], np.load(file, mmap_mode="r")[:, :8], ROWS.numpy()):
        blocks = ArrayBlocks(array)
        assert blocks._file is None
        assert np.array_equal(blocks.read(0, 50).numpy(), array[:50])


def test_a_survey_gives_the_energy_and_the_rows_asked_for_in_their_order() -> None:
    wanted = torch.tensor([699, 0, 255, 256, 12])
    energy, rows = survey(as_blocks(ROWS), wanted)
    assert energy == pytest.approx(float(ROWS.double().square().sum()), rel=1e-6)
    assert torch.equal(rows, ROWS[wanted])
    assert survey(as_blocks(ROWS), wanted[:0])[1].shape == (0, 16)


def test_bad_values_in_a_late_block_and_a_byte_order_of_another_machine_are_refused() -> None:
    assert block_rows(16) == block_rows(1 << 20) == 256
    rows = ROWS.clone()
    rows[650, 3] = -2
    with pytest.raises(InputError, match=r"activations go down to -2"):
        nmf(rows, 5)
    with pytest.raises(InputError, match="activations are >f4; convert them"):
        nmf(ROWS.numpy().astype(">f4"), 3)


@pytest.mark.parametrize("n", [1, 255, 256, 700, 5000, 8192, 20_000])
def test_blocks_are_even_an_odd_number_of_lines_long_and_hold_every_row_once(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("masil.concepts.nmf_blocks.FEWEST_ROWS", 128)
    source = as_blocks(torch.arange(16.0 * n).view(n, 16))
    length = block_length(source)
    assert length % 32 == 16
    assert length <= block_rows(16) + 32
    assert len(block_starts(source)) * length >= n > (len(block_starts(source)) - 1) * length
    assert torch.equal(torch.cat(list(iterate(source))), source.read(0, n))
