"""Which base session serves new classes best? python benchmarks/recipes.py

A share of the base classes is left out of the base session and plays novel ones, on base *training* images alone; no
test image has a say. A recipe and its variants, each a list of changes, train a backbone on the rest; this package's
MASIL then learns the classes left out from a few images, over several draws of these. Given are accuracy over all
classes at the best strength of the balance, the best harmonic mean, and accuracy among base and among novel classes
alone.

    python benchmarks/recipes.py --protocol cub200 --recipe cub200-gentle-resnet18 --weights resnet18.safetensors \\
        --variant epochs=12 --variant stages=[[12,224]] 'loss.smoothing=.1'
    python benchmarks/recipes.py --page docs/recipes.md results/recipes/*.json
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from defaults import measure
from masil.benchmark import Origin, Setting, prepare
from masil.benchmark.provenance import command, make_stamp, package_code
from masil.cli.options import change_recipe, read_parameters
from masil.data import load
from masil.protocol import PROTOCOLS, pseudo_novel
from masil.storage import read_json, write_bytes, write_json
from masil.training import Recipe, recipe

Row = dict[str, Any]


def variants(asked: argparse.Namespace) -> list[Recipe]:
    """Give the recipe as it is, then with each list of changes."""
    usual = recipe(asked.recipe)
    if asked.weights is not None:
        usual = replace(usual, weights=str(asked.weights))
    changes = [read_parameters([f"recipe.{change}" for change in each], []) for each in asked.variant]
    plain = [] if asked.variants_only else [usual]
    return [*plain, *(change_recipe(usual, each["recipe"]) for each in changes)]


def judge(setting: Setting, draws: int, seed: int) -> Row:
    """Give the means over draws, each at the strength of the balance that is best for what is asked."""
    rows = list(measure(setting, {}, seed, draws))
    found = [[row for row in rows if row["draw"] == draw] for draw in range(draws)]
    best = {aim: [max(row[aim] for row in rows) for rows in found] for aim in ("accuracy", "harmonic_mean")}
    return {aim: fmean(values) for aim, values in best.items()} | {
        "accuracy_deviation": stdev(best["accuracy"]) if draws > 1 else 0.0,
        "base_alone": fmean(rows[0]["base_alone"] for rows in found),
        "novel_alone": fmean(rows[0]["novel_alone"] for rows in found),
    }


def rank(asked: argparse.Namespace) -> None:
    """Train and judge every variant on every division of the base classes; the file grows row by row."""
    protocol = PROTOCOLS[asked.protocol]
    dataset = load(protocol.dataset, asked.data)
    sessions = max(1, round(protocol.base_classes * asked.share / protocol.way))
    rows = read_json(asked.out)["rows"] if asked.out.is_file() else []
    for plan in variants(asked):
        for play in range(asked.plays):
            if any((row["recipe"], row["play"]) == (plan.name, play) for row in rows):
                continue
            shape, base = pseudo_novel(protocol, dataset, sessions=sessions, seed=play)
            started, begun = datetime.now(UTC), time.perf_counter()
            folder = asked.base / f"{plan.name.replace(' ', '_').replace('/', '_')}-{play}"
            setting = prepare(shape, Origin(recipe=plan, folder=folder), dataset=base, views=asked.views)
            row = {"recipe": plan.name, "play": play, "loss": setting.history[-1]["loss"]}
            row |= judge(setting, asked.draws, asked.seed)
            seconds = time.perf_counter() - begun
            stamp = make_stamp(command(), setting.device, None, started=started, seconds=seconds)
            rows.append(row | {"code": package_code(), "stamp": asdict(stamp)})
            print(
                {name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()},
                flush=True,
            )
            about = {"protocol": asked.protocol, "views": asked.views, "draws": asked.draws, "share": asked.share}
            write_json(asked.out, {**about, "rows": rows})


def page(files: list[Path]) -> str:
    """Give all files as Markdown, the best recipe of each first."""
    assert __doc__ is not None
    lines = ["# Base sessions on classes that play novel", "", __doc__.split("\n\n")[1].replace("\n", " ")]
    keys = ("accuracy", "accuracy_deviation", "harmonic_mean", "base_alone", "novel_alone")
    for file in files:
        found = read_json(file)
        lines += [
            "",
            f"## {found['protocol']} ({file.name})",
            "",
            f"{found['draws']} draws, {found['views']} views.",
            "",
        ]
        lines += ["| recipe | plays | accuracy | ± | harmonic mean | base alone | novel alone | minutes |"]
        lines += ["| --- " + "| ---: " * 7 + "|"]
        groups: dict[str, list[Row]] = {}
        for row in found["rows"]:
            groups.setdefault(row["recipe"], []).append(row)
        means = {name: {key: fmean(row[key] for row in rows) for key in keys} for name, rows in groups.items()}
        for name, values in sorted(means.items(), key=lambda pair: -pair[1]["accuracy"]):
            minutes = fmean(row["stamp"]["seconds"] for row in groups[name]) / 60
            figures = " | ".join(f"{values[key]:.2f}" for key in keys)
            lines.append(f"| {name} | {len(groups[name])} | {figures} | {minutes:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="with --page: the JSON files to show")
    parser.add_argument("--protocol", default="cub200")
    parser.add_argument("--recipe", default="cub200-gentle")
    parser.add_argument("--weights", type=Path, help="a weight file to start from, instead of the recipe's")
    parser.add_argument(
        "--variant", nargs="+", action="append", default=[], help="NAME=VALUE of the recipe; repeatable"
    )
    parser.add_argument("--variants-only", action="store_true", help="leave out the recipe as it is")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--plays", type=int, default=1, help="divisions of the base classes")
    parser.add_argument("--draws", type=int, default=5, help="of the images of classes that play novel")
    parser.add_argument("--share", type=float, default=0.4, help="of the base classes that play novel")
    parser.add_argument("--views", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--base", type=Path, default=Path("runs/recipes"), help="where backbones are kept")
    parser.add_argument("--out", type=Path, default=Path("results/recipes/recipes.json"))
    parser.add_argument("--page", type=Path, help="make a page of the files instead")
    asked = parser.parse_args()
    if asked.page:
        write_bytes(asked.page, page(asked.files).encode())
    else:
        rank(asked)


if __name__ == "__main__":
    main()
