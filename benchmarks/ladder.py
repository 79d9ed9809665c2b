"""Where does each point of MASIL's lead come from? python benchmarks/ladder.py

One grid: g is the identity or whitening; activations as they are or their square roots; a new class is drawn to
nothing, to similar base classes (TEEN), to what concepts say of it, or to both; and scores are compared as they are, or
balanced at one of two points: the strength of balance that is best on base classes that play novel, in accuracy over
all classes or in the harmonic mean of base and novel accuracy. To a backbone that was trained on them they are not new,
so their strength is found with backbones that `--without` trains anew without them, by a recipe. The lowest rung,
identity, p = 1, no prior, scores as they are, is D-Cosine on unit activations. Shots are the standard ones and ten
draws; nothing is chosen on test images.

    python benchmarks/ladder.py --protocol cifar100 --checkpoint weights/cifar100 --views 2 --without cifar100-fast
    python benchmarks/ladder.py --protocol cub200
    python benchmarks/ladder.py --page

The first two write results/ladder/NAME.json, going on where they were stopped; the last makes docs/ladder.md and its
picture of all such files. One whose commit is not in the history says why it is shown as `"waiting"`, or `masil report
results --check` refuses it.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from masil.benchmark import Entry, Origin, Setting, prepare, with_held_out
from masil.benchmark.play import DrawData, draw_data, session_data
from masil.benchmark.provenance import command, make_stamp, package_code
from masil.errors import InputError
from masil.methods import METHODS, Balanced, balanced
from masil.progress import track
from masil.protocol import score_session, summarise
from masil.report.traced import portable
from masil.storage import read_json, write_bytes, write_json
from masil.training import recipe

G = {"identity": "linear", "whitening": "whitening"}
POWERS = (1.0, 0.5)
PRIORS: dict[str, str | None] = {"no prior": None, "TEEN": "teen", "concepts": "concepts", "both": "both"}
POINTS = {"as they are": None, "accuracy point": "accuracy", "harmonic point": "harmonic"}
FIGURES = ("last", "average", "harmonic_mean", "base", "novel")
Row = dict[str, Any]


At = tuple[str, float, str]  # g, power and prior of a rung


def rung(at: At) -> Balanced:
    """Make the learner of a rung, its own balance off; without concepts the bank is as small as can be."""
    g, power, prior = at
    bank = {} if prior in ("concepts", "both") else {"concepts": 1}
    parameters = {"embedding": G[g], "power": power, "calibration": PRIORS[prior], "balance": 0.0, **bank}
    made = balanced(METHODS["masil"])(**parameters)
    assert isinstance(made, Balanced)
    return made


def climb(setting: Setting, data: dict[int | None, DrawData], at: At, seed: int) -> list[Row]:
    """Give the figures of a rung at all points and draws; the base session is learnt once."""
    g, power, prior = at
    protocol = setting.protocol
    method = rung(at)
    base = next(session_data(protocol, next(iter(data.values()))))
    method.fit(base.taught, Entry.of("masil").task(setting, method, seed))
    strengths = {point: 0.0 if aim is None else method.points[aim] for point, aim in POINTS.items()}
    rows = []
    for draw, arrays in data.items():
        taught, scores = copy.deepcopy(method), {point: [] for point in POINTS}  # type: ignore[var-annotated]
        for session in session_data(protocol, arrays):
            if session.number:
                taught.learn(session.taught)
            for point, strength in strengths.items():
                taught.points = {taught.aim: strength}
                scores[point].append(
                    score_session(protocol, session.number, taught.predict(session.tests), session.truth)
                )
        for point, played in scores.items():
            last = played[-1]
            figures = (last.accuracy, summarise(protocol, played).average, last.harmonic_mean, last.base, last.novel)
            shares = dict(zip(FIGURES, (100 * value for value in figures), strict=True))
            rows.append({"g": g, "power": power, "prior": prior, "point": point, "draw": draw,
                         "strength": strengths[point], **shares})  # fmt: skip
    return rows


def measure(asked: argparse.Namespace) -> None:
    """Climb all rungs that the file does not have yet, and write it after each."""
    source = {"backbone": asked.backbone, "weights": asked.weights, "checkpoint": asked.checkpoint}
    setting = prepare(asked.protocol, Origin(**source), data=asked.data, views=asked.views)
    if setting.trained is not None and asked.without is None:
        raise InputError(
            "This backbone was trained on the classes that are to play novel; name a recipe that trains others "
            "without them: --without cifar100-fast."
        )
    if asked.without is not None:
        setting = with_held_out(setting, recipe(asked.without), asked.base)
    draws: list[int | None] = [*setting.draws(None), *range(asked.draws)] if asked.draws else list(setting.draws(None))
    data = draw_data(setting, list(dict.fromkeys(draws)))
    name = asked.name or "-".join(filter(None, [asked.protocol, setting.recipe or setting.backbone.name]))
    file, started, begun = asked.folder / f"{name}.json", datetime.now(UTC), time.perf_counter()
    about = {
        "protocol": setting.protocol.name, "backbone": setting.backbone.name, "recipe": setting.recipe,
        "views": setting.views, "draws": list(data), "seed": asked.seed, "weights": setting.fingerprint,
        "data": setting.checksum, "code": package_code(),
        "without": None if setting.held_out is None else [setting.held_out.recipe, *setting.held_out.weights],
    }  # fmt: skip
    known = read_json(file) if file.is_file() else {}
    rows: list[Row] = known.get("rows", []) if all(known.get(key) == value for key, value in about.items()) else []
    done = {(row["g"], row["power"], row["prior"]) for row in rows}
    rungs = [at for at in itertools.product(G, POWERS, PRIORS) if at not in done]
    for at in track(rungs, "Climbing"):
        rows += climb(setting, data, at, asked.seed)
        seconds = time.perf_counter() - begun
        stamp = make_stamp(command(), setting.device, None, started=started, seconds=seconds)
        write_json(file, {**about, "stamp": asdict(stamp), "rows": rows})
    print(f"{len(rows)} figures are in {file}.")


def chosen(rows: Sequence[Row], **wanted: Any) -> Iterator[Row]:
    """Yield the rows that have these values."""
    return (row for row in rows if all(row[key] == value for key, value in wanted.items()))


def over_draws(rows: Sequence[Row], key: str) -> str:
    """Give mean ± deviation over the drawn shots."""
    values = [row[key] for row in rows if row["draw"] is not None]
    if not values:
        return "–"
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def table(found: Row) -> list[str]:
    """Give a file's grid as a Markdown table: on standard shots, then over draws."""
    standard = any(row["draw"] is None for row in found["rows"])
    ends = ("last", "average", "harmonic_mean")
    head = "| g | p | prior | scores | strength |" + " last | average | HM |" * (1 + standard)
    lines = [head, "| --- | ---: | --- | --- " + "| ---: " * (1 + 3 * (1 + standard)) + "|"]
    for g, power, prior, point in itertools.product(G, POWERS, PRIORS, POINTS):
        rows = list(chosen(found["rows"], g=g, power=power, prior=prior, point=point))
        if rows:
            fixed = [f"{row[key]:.2f}" for row in rows if row["draw"] is None for key in ends]
            cells = [g, f"{power:g}", prior, point, f"{rows[0]['strength']:g}", *fixed]
            lines.append(f"| {' | '.join([*cells, *(over_draws(rows, key) for key in ends)])} |")
    return lines


def picture(found: list[Row], file: Path) -> None:
    """Draw last accuracy and harmonic mean of every rung: one panel a data set and point, one mark a rung."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    size = (4 * len(POINTS), 3.4 * len(found))
    figure, panels = plt.subplots(
        len(found), len(POINTS), figsize=size, squeeze=False, sharey="row", layout="constrained"
    )
    for line, one in zip(panels, found, strict=True):
        for panel, point in zip(line, POINTS, strict=True):
            for (g, power), marker in zip(itertools.product(G, POWERS), "os^D", strict=False):
                rungs = [list(chosen(one["rows"], g=g, power=power, prior=prior, point=point)) for prior in PRIORS]
                means = [[np.mean([row[key] for row in rows]) for rows in rungs] for key in ("last", "harmonic_mean")]
                panel.plot(range(len(PRIORS)), means[0], marker=marker, label=f"{g}, p = {power:g}")
                panel.plot(range(len(PRIORS)), means[1], marker=marker, ls=":", color=panel.lines[-1].get_color())
            panel.set_xticks(range(len(PRIORS)), PRIORS)
            panel.set_title(f"{one['protocol']}: {point}", fontsize=9)
            panel.grid(axis="y", alpha=0.3)
    panels[0][0].set_ylabel("last accuracy (–), harmonic mean (··), %")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})


def write_page(folder: Path, out: Path) -> None:
    """Make the page and its picture of all files of a folder."""
    files = sorted(folder.glob("*.json"))
    found = [read_json(file) for file in files]
    image = out.parent / "images" / "ladder.svg"
    picture(found, image)
    assert __doc__ is not None
    lines = ["# The ladder: where each point comes from", "", __doc__.split("\n\n")[1].replace("\n", " "), ""]
    lines += [f"![Accuracy and harmonic mean of every rung](images/{image.name})"]
    for file, one in zip(files, found, strict=True):
        about = [
            one["backbone"],
            one["recipe"] and f"trained by {one['recipe']}",
            one["views"] > 1 and f"{one['views']} views",
        ]
        lines += ["", f"## {one['protocol']} ({', '.join(filter(None, about))})", ""]
        made = f"`python benchmarks/{portable(one['stamp']['command'])}` at {one['stamp']['commit']}"
        lines += [f"{len(one['draws'])} sets of shots; {made}; {file.name}.", ""]
        lines += [f"Waiting: {one['waiting']}.", ""] if one.get("waiting") else []
        lines += table(one)
    write_bytes(out, ("\n".join(lines) + "\n").encode())
    print(f"{out} shows {len(found)} files.")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", default="cub200")
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--base", type=Path, default=Path("runs/without"), help="where backbones are kept")
    parser.add_argument("--without", help="the recipe of backbones that do not know the classes that play novel")
    parser.add_argument("--views", type=int, default=1, help="looks at an image that are averaged; 2 is mirrored")
    parser.add_argument("--draws", type=int, default=10, help="beside the standard shots")
    parser.add_argument("--name", help="of the file; by default that of the protocol and the backbone")
    parser.add_argument("--folder", type=Path, default=Path("results/ladder"))
    parser.add_argument("--page", nargs="?", type=Path, const=Path("docs/ladder.md"), help="make the page instead")
    asked = parser.parse_args()
    if asked.page:
        write_page(asked.folder, asked.page)
    else:
        measure(asked)


if __name__ == "__main__":
    main()
