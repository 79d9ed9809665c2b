import json
from collections.abc import Callable
from pathlib import Path

import pytest

from masil.benchmark import RunRecord, write_run
from masil.errors import StorageError
from masil.report import read_results, results_latex, results_markdown

Make = Callable[..., RunRecord]


def keep(run: RunRecord, folder: Path, name: str) -> Path:
    """Put a run into a folder of results, as one file."""
    folder.mkdir(exist_ok=True)
    return write_run(run, folder / "parts").rename(folder / f"{name}.json")


def test_a_file_a_runs_folder_and_a_folder_of_runs(record: Make, tmp_path: Path) -> None:
    results = tmp_path / "results"
    file = keep(record("teen"), results, "b")
    keep(record(), results, "a")
    assert [run.method for run in read_results(results)] == ["masil", "teen"]
    assert [run.method for run in read_results(file)] == ["teen"]
    write_run(record("fecam"), tmp_path / "out" / "one")
    write_run(record("alice"), tmp_path / "out" / "two")
    assert [run.method for run in read_results(tmp_path / "out" / "one")] == ["fecam"]
    assert [run.method for run in read_results(tmp_path / "out")] == ["alice", "fecam"]


def test_nothing_to_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"There is no run in .*; `masil run --out .*NAME` puts one there\."):
        read_results(tmp_path)
    with pytest.raises(StorageError, match=r"There is no .*absent; name a run\.json"):
        read_results(tmp_path / "absent")


def test_a_run_of_a_newer_masil_is_said_to_be_so(record: Make, tmp_path: Path) -> None:
    file = keep(record(), tmp_path / "results", "a")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 99}))
    with pytest.raises(StorageError, match="has version 99 .* a newer masil wrote it"):
        read_results(tmp_path / "results")


def test_markdown_is_the_same_for_any_order_and_says_what_is_missing(record: Make) -> None:
    runs = [record(), record("teen"), record(protocol="cub200", sessions=11)]
    text = results_markdown(runs, ["masil", "teen", "icarl"])
    assert text == results_markdown(runs[::-1], ["icarl", "teen", "masil"])
    assert text.index("## CIFAR-100") < text.index("## CUB-200") < text.index("## Ablation and concepts")
    assert text.index("## miniImageNet") < text.index("## CIFAR-100")
    assert text.count("| iCaRL ") == 5  # published three times, and not run where others were
    assert text.count("| every method ") == 1
    assert "miniImageNet" not in results_markdown(runs[:1]).split("## Ablation")[0]
    assert "```sh\ngit checkout 1a1d552\nmasil run cifar100 --method masil\n```" in text
    assert text.endswith("```\n")


def test_latex_has_every_table(record: Make) -> None:
    text = results_latex([record()])
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 4
    assert "\\textit{measured by masil: resnet18, trained by cifar100-fast, standard shots}" in text
