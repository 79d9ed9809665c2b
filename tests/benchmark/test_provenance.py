import sys
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch

from masil.benchmark import provenance
from masil.methods import DCosine
from masil.methods.balanced import balanced


@dataclass
class Kept:
    table: torch.Tensor
    more: dict[str, object] = field(default_factory=dict)


def test_what_a_method_keeps_is_counted_once():
    shared = torch.zeros(10, 4)
    layer = torch.nn.Linear(3, 2)  # 8 numbers
    kept = Kept(shared, {"again": shared, "rows": [np.zeros(5), (layer, np)], "note": "nothing", "none": None})
    kept.more["itself"] = kept
    assert provenance.model_bytes(kept) == 10 * 4 * 4 + 5 * 8 + 8 * 4


def test_a_command_can_be_copied(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/masil/__main__.py", "run", "--data", "my data"])
    assert provenance.command() == "masil run --data 'my data'"
    monkeypatch.setattr(sys, "argv", ["/home/me/compare.py", "-x"])
    assert provenance.command() == "compare.py -x"


def test_the_code_s_checksum_follows_what_makes_figures(tmp_path, monkeypatch):
    def checksum():
        provenance.package_code.cache_clear()
        return provenance.package_code()

    with monkeypatch.context() as patch:
        patch.setattr(provenance.masil, "__file__", str(tmp_path / "__init__.py"))
        for room in ("methods", "cli"):
            (tmp_path / room).mkdir()
            (tmp_path / room / "a.py").write_text("1")
        first = checksum()
        (tmp_path / "cli" / "a.py").write_text("2")
        assert checksum() == first
        (tmp_path / "methods" / "a.py").write_text("2")
        assert checksum() != first
    provenance.package_code.cache_clear()


def test_a_method_of_one_s_own_adds_its_source():
    class Mine(DCosine):
        pass

    for method in (Mine, balanced(Mine)):
        assert provenance.own_code(method) == sha256(Path(__file__).read_bytes()).hexdigest()
    assert provenance.own_code(balanced(DCosine)) is None
    assert provenance.own_code(DCosine) is None
