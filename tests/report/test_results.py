import json
import re
from html import unescape

import pytest

from masil.benchmark import write_run
from masil.errors import StorageError
from masil.methods import METHODS
from masil.report import html_report, methods_markdown, read_results, results_latex, results_markdown


def keep(run, folder, name):
    """Put a run into a folder of results, as one file."""
    folder.mkdir(exist_ok=True)
    return write_run(run, folder / "parts").rename(folder / f"{name}.json")


def test_a_file_a_runs_folder_and_a_folder_of_runs(record, tmp_path):
    results = tmp_path / "results"
    file = keep(record("teen"), results, "b")
    keep(record(), results, "a")
    assert [run.method for run in read_results(results)] == ["masil", "teen"]
    assert [run.method for run in read_results(file)] == ["teen"]
    write_run(record("fecam"), tmp_path / "out" / "one")
    write_run(record("alice"), tmp_path / "out" / "two")
    assert [run.method for run in read_results(tmp_path / "out" / "one")] == ["fecam"]
    assert [run.method for run in read_results(tmp_path / "out")] == ["alice", "fecam"]


def test_what_cannot_be_read_is_a_sentence(record, tmp_path):
    with pytest.raises(
        StorageError, match=r"There is no run in .*; `masil run characters --out .*characters` puts one there\."
    ):
        read_results(tmp_path)
    with pytest.raises(StorageError, match=r"There is no .*absent; name a run\.json"):
        read_results(tmp_path / "absent")
    file = keep(record(), tmp_path / "results", "a")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 99}))
    with pytest.raises(StorageError, match="has version 99 .* a newer masil wrote it"):
        read_results(tmp_path / "results")


def test_markdown_is_the_same_for_any_order_and_folds_what_is_long(record, tmp_path):
    runs = [record(), record("teen"), record("nc-ce", protocol="cub200", sessions=11)]
    text = results_markdown(runs)
    assert text == results_markdown(runs[::-1])
    assert text.index("## CIFAR-100") < text.index("## CUB-200") < text.index("## Ablation and concepts")
    assert "miniImageNet" not in text.split("## Ablation")[0]
    unfolded = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert unfolded.count("| TEEN ") == 1
    assert text.count("<details>") == text.count("</details>") == 7
    command = "```sh\ngit checkout 1a1d552\nmasil run cifar100 --method masil\n# resnet18, trained by cifar100-fast, "
    assert command in text


def test_rows_lead_to_the_files_of_their_runs(record, tmp_path):
    keep(record(), tmp_path / "results", "a")
    text = results_markdown(read_results(tmp_path / "results"), folder=tmp_path / "docs")
    assert text.count("(../results/a.json)") == 2  # in the leaderboard and beside its command


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("masil run --data /home/a --checkpoint /b/runs/x/final", "masil run --data DATA --checkpoint runs/x/final"),
        ("masil run --weights=/data/resnet18.safetensors -o /tmp/b", "masil run --weights=resnet18.safetensors -o OUT"),
        ("masil run '/home/a b/photos' --methods /a/my.py:Mine", "masil run photos --methods my.py:Mine"),
        (r"masil run --data 'C:\Users\a\full' -o 'C:\runs\x'", "masil run --data DATA -o runs/x"),
        ("masil run cifar100 --checkpoint weights/cifar100", "masil run cifar100 --checkpoint weights/cifar100"),
        ("an apostrophe's not closed", "an apostrophe's not closed"),
    ],
)
def test_a_command_is_shown_without_the_folders_of_the_machine_that_ran_it(record, command, shown):
    assert f"\n{shown}\n# resnet18" in results_markdown([record(command=command)])
    assert f"\n{command}" in unescape(html_report([record(command=command)]))  # for whoever ran it, as it was


def test_latex_has_every_table(record):
    text = results_latex([record()])
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 4
    assert "\\textit{measured by masil: resnet18, trained by cifar100-fast, standard shots}" in text


def test_every_method_has_a_line_and_a_citation_and_bibtex_says_no_more_than_it():
    page = methods_markdown()
    for method in METHODS.values():
        if method.__module__.startswith("masil."):
            assert f"| `{method.name}` |" in page
            assert f": {method.citation}." in page
    entry = page[page.index("@inproceedings{vinyals2016") :].partition("}\n\n")[0]
    assert re.findall(r"(\w+) = \{+([^}]*)", entry) == [
        ("author", "Vinyals and others"), ("title", "Matching Networks for One Shot Learning"),
        ("booktitle", "NeurIPS"), ("year", "2016"),
    ]  # fmt: skip
    keys = re.findall(r"@\w+\{(\w+)", page)
    assert len(keys) == len(set(keys))
