"""What was published: the figures of the MASIL paper's tables, as printed there, and what is wrong with them.

They are facts that come with the package. Nothing here was measured by masil, and no table puts them into one group
with what was.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import final

TITLES: Mapping[str, str] = {
    "miniimagenet": "miniImageNet",
    "cifar100": "CIFAR-100",
    "cub200": "CUB-200",
    "characters": "Characters",
    "omniglot": "Omniglot",
}
TABLES = ("miniimagenet", "cifar100", "cub200")  # the paper's own order
# A name of the paper's -> the title of the same method here. This package's MASIL is another than the paper's.
SAME: Mapping[str, str] = {"Self-promoted": "SPPR", "MASIL": "MASIL (as the paper writes it)"}

# Where the paper's arithmetic, or a name in it, needs a word. Tables show these below themselves.
REMARKS: Mapping[str, tuple[str, ...]] = {
    "miniimagenet": (
        "Self-promoted: the paper prints an average of 52.76; the mean of its sessions is 53.08.",
        "NCM is LUCIR (Hou et al., 2019), Self-promoted is SPPR (Zhu et al., 2021).",
    ),
    "cifar100": (
        (
            "The paper's column of relative improvements belongs to a last accuracy of 56.15, not to the 57.23 it "
            "prints for MASIL: against ALICE it prints +2.05 where its accuracies give +3.13. Only the +1.12 against "
            "NC-FSCIL fits."
        ),
        "NCM is LUCIR (Hou et al., 2019), Self-promoted is SPPR (Zhu et al., 2021).",
    ),
    "cub200": ("NCM is LUCIR (Hou et al., 2019).",),
    "ablation": (
        (
            "The published row NC + ETF loss repeats the figures that NC-FSCIL published for itself, with another "
            "backbone on miniImageNet and CIFAR-100 (ResNet-12)."
        ),
        "On miniImageNet the paper's average of NC + CE (68.23) lies above that of MASIL (68.11).",
    ),
    "concept_cosine": (
        (
            "Concepts are non-negative, so no mean of plain cosines between them can be below 0. After centring, any v "
            "concepts of equal length have −1/(v − 1) on average: the published figures are of that kind."
        ),
    ),
}


@final
@dataclass(frozen=True)
class PublishedRow:
    """One method's printed accuracies in per cent, by session, and the printed average."""

    method: str
    sessions: tuple[float, ...]
    average: float

    @property
    def last(self) -> float:
        """The accuracy after the last session."""
        return self.sessions[-1]


@cache
def published(protocol: str) -> tuple[PublishedRow, ...]:
    """Give the paper's table for a protocol in its order, MASIL last; no rows where the paper has no such table."""
    if protocol not in TABLES:
        return ()
    return tuple(
        PublishedRow(
            row["method"],
            tuple(float(value) for name, value in row.items() if name.startswith("session_")),
            float(row["average"]),
        )
        for row in _read(protocol)
    )


def published_row(protocol: str, title: str) -> PublishedRow | None:
    """Give the paper's row of a method by its title here, which may say whose reading and which variant ours is."""
    plain = f"{title.removeprefix('our reading of ')} (".lower()
    rows = published(protocol)
    return next((row for row in rows if plain.startswith(f"{SAME.get(row.method, row.method)} (".lower())), None)


@cache
def published_ablation() -> Mapping[str, Mapping[str, tuple[float, float]]]:
    """Give the paper's ablation: model, then protocol, then (accuracy after the last session, average)."""
    return {
        row["model"]: {name: (float(row[f"{name}_final"]), float(row[f"{name}_average"])) for name in TABLES}
        for row in _read("ablation")
    }


@cache
def published_concept_cosines() -> Mapping[str, float]:
    """Give the paper's average cosine between concepts, by protocol."""
    return {row["dataset"]: float(row["average_cosine_between_concepts"]) for row in _read("concept_cosine")}


def _read(name: str) -> list[dict[str, str]]:
    text = files("masil.report").joinpath("paper", f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
