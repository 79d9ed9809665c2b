"""Why not keep all photos and train a linear classifier again? python benchmarks/retrain.py

MASIL learns new classes from a few photos and keeps no old one. A practitioner would keep every photo, old and new, and
train again: logistic regression (plain, and with classes weighing alike), a linear SVM, LDA with a shrunk covariance,
or the nearest photos. All see the same stored activations of one backbone. The old classes are a base session; then
new classes are added, ten at a time. Given are accuracy on old classes, on new ones, their harmonic mean, and the
seconds that adding the last ten took: for MASIL a session, for the others training on everything. The rivals' constants
(C, the number of neighbours) are chosen by cross-validation on the photos they train on; the time of that choice is not
counted.

    python benchmarks/retrain.py --protocol cub200 --out results/retrain/cub200.json
    python benchmarks/retrain.py --folder photos --base 20 --shot 5 --out mine.json
    python benchmarks/retrain.py --page docs/retrain.md results/retrain/*.json

The file is written after each classifier; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import LinearSVC

from masil.benchmark import Origin, Setting, prepare
from masil.benchmark.play import draw_data, session_data
from masil.benchmark.provenance import command, make_stamp, package_code
from masil.data import load
from masil.methods import make
from masil.methods.method import Samples, Task
from masil.protocol import cut_protocol, harmonic_mean
from masil.report.traced import portable
from masil.storage import read_json, write_bytes, write_json

CS, SVM_CS = (0.001, 0.01, 0.1, 1.0), (0.0001, 0.001, 0.01, 0.1)
NEIGHBOURS = (1, 3, 5, 11)
TITLES = {
    "masil": "MASIL, no old photo kept",
    "logistic": "logistic regression",
    "logistic-balanced": "logistic regression, classes weigh alike",
    "svm": "linear SVM",
    "lda": "LDA, shrunk covariance",
    "neighbours": "nearest photos",
}
Array = np.ndarray[Any, Any]


def folds(labels: Array) -> StratifiedKFold:
    """Cut into as many parts as the smallest class allows, five at most."""
    return StratifiedKFold(int(min(5, max(2, np.bincount(labels).min()))))


def rivals(labels: Array) -> dict[str, Callable[[], Any]]:
    """Give makers of classifiers that train on all photos."""

    def searched(model: Any, name: str, values: tuple[float, ...]) -> Callable[[], Any]:
        return lambda: GridSearchCV(model, {name: values}, cv=folds(labels))

    def logistic(weight: str | None) -> Callable[[], Any]:
        regression = LogisticRegression(class_weight=weight, max_iter=300)
        return searched(make_pipeline(Normalizer(), StandardScaler(), regression), "logisticregression__C", CS)

    nearest = make_pipeline(Normalizer(), KNeighborsClassifier())
    svm = make_pipeline(Normalizer(), StandardScaler(), LinearSVC(dual="auto", max_iter=2000))
    return {
        "logistic": logistic(None),
        "logistic-balanced": logistic("balanced"),
        "svm": searched(svm, "linearsvc__C", SVM_CS),
        "lda": lambda: make_pipeline(Normalizer(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")),
        "neighbours": searched(nearest, "kneighborsclassifier__n_neighbors", NEIGHBOURS),
    }


def score(answers: Array, truth: Array, base: int) -> dict[str, float]:
    """Give accuracy on old classes, on new ones, of all, and the harmonic mean of the first two, in per cent."""
    right = answers == truth
    old, new = float(right[truth < base].mean()), float(right[truth >= base].mean())
    means = {"old": old, "new": new, "all": float(right.mean()), "harmonic_mean": harmonic_mean(old, new)}
    return {name: 100 * value for name, value in means.items()}


def measure(setting: Setting, draw: int | None, names: list[str], seed: int) -> Iterator[dict[str, Any]]:
    """Yield each classifier's figures after the last session of a draw."""
    protocol = setting.protocol
    sessions = list(session_data(protocol, draw_data(setting, [draw])[draw]))
    tests, truth = sessions[-1].tests, sessions[-1].truth.numpy()
    parts: list[Samples] = [session.taught for session in sessions]
    x = np.concatenate([part.activations.numpy() for part in parts])
    y = np.concatenate([part.labels.numpy() for part in parts])
    if "masil" in names:
        method = make("masil")
        method.fit(parts[0], Task(protocol, seed=seed, adapted=setting.trained is not None))
        for part in parts[1:]:
            start = time.perf_counter()
            method.learn(part)
            seconds = time.perf_counter() - start
        answers = method.predict(tests).numpy()
        yield {"method": "masil", "draw": draw, "seconds": seconds, **score(answers, truth, protocol.base_classes)}
    for name, fresh in rivals(y).items():
        if name in names:
            model = fresh()
            start = time.perf_counter()
            model.fit(x, y)
            seconds = getattr(model, "refit_time_", time.perf_counter() - start)  # once its constants are known
            answers = model.predict(tests.activations.numpy())
            yield {"method": name, "draw": draw, "seconds": seconds, **score(answers, truth, protocol.base_classes)}


def page(files: list[Path]) -> str:
    """Give the tables of all files as Markdown."""
    intro = "MASIL adds classes without any old photo; the others train anew on all photos, old and new."
    lines = ["# Or keep all photos and train again?", "", f"{intro} By `benchmarks/retrain.py`; means over draws, %."]
    for file in files:
        found = read_json(file)
        classes = f"{found['base_classes']} old classes, {found['new_classes']} new ones of {found['shot']} photos"
        made = f"`python benchmarks/{portable(found['stamp']['command'])}` at {found['stamp']['commit']}"
        about = f"{found['backbone']}, {classes}, {len(found['draws'])} draw(s). {made}"
        head = f"| | old | new | all | harmonic mean | seconds to add the last {found['way']} classes |"
        lines += ["", f"## {found['protocol']}", "", about, "", head, "| --- " + "| ---: " * 5 + "|"]
        for name, title in TITLES.items():
            rows = [row for row in found["rows"] if row["method"] == name]
            if rows:
                means = [float(np.mean([row[key] for row in rows])) for key in ("old", "new", "all", "harmonic_mean")]
                seconds = float(np.median([row["seconds"] for row in rows]))
                lines.append(f"| {title} | {' | '.join(f'{value:.2f}' for value in means)} | {seconds:.3g} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="with --page: the JSON files to show")
    parser.add_argument("--protocol", default="cub200")
    parser.add_argument("--folder", help="a folder of class folders instead of a protocol")
    parser.add_argument("--base", type=int, default=10, help="with --folder: how many classes are old")
    parser.add_argument("--way", type=int, default=10, help="with --folder: new classes at a time")
    parser.add_argument("--shot", type=int, default=5, help="with --folder: photos of a new class")
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--draws", type=int, help="how many draws of the shots; the standard shots if not given")
    parser.add_argument("--only", nargs="*", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    if asked.page:
        write_bytes(asked.page, page(asked.files).encode())
        return
    source: dict[str, Any] = {"backbone": asked.backbone, "weights": asked.weights, "checkpoint": asked.checkpoint}
    if asked.folder:
        dataset, folder = load(str(asked.folder)), Path(asked.folder)
        shape = cut_protocol(dataset, folder, base=asked.base, way=asked.way, shot=asked.shot)
        setting = prepare(shape, Origin(**source), dataset=dataset)
    else:
        setting = prepare(asked.protocol, Origin(**source))
    draws, protocol = setting.draws(asked.draws), setting.protocol
    about = {
        "protocol": protocol.name, "backbone": setting.backbone.name, "base_classes": protocol.base_classes,
        "new_classes": protocol.classes - protocol.base_classes, "way": protocol.way, "shot": protocol.shot,
        "draws": list(draws), "seed": asked.seed, "weights": setting.fingerprint, "data": setting.checksum,
        "code": package_code(),
    }  # fmt: skip
    known = read_json(asked.out) if asked.out and asked.out.is_file() else {}
    rows = known.get("rows", []) if all(known.get(key) == value for key, value in about.items()) else []
    done = {(row["method"], row["draw"]) for row in rows}
    started, begun = datetime.now(UTC), time.perf_counter()
    for draw in draws:
        for row in measure(setting, draw, [name for name in asked.only if (name, draw) not in done], asked.seed):
            print(row, flush=True)
            rows.append(row)
            seconds = time.perf_counter() - begun
            stamp = make_stamp(command(), setting.device, None, started=started, seconds=seconds)
            if asked.out:
                write_json(asked.out, {**about, "stamp": asdict(stamp), "rows": rows})


if __name__ == "__main__":
    main()
