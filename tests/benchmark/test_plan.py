"""Which methods can be played in a setting is said before anything is made for them; each sees one kind of views."""

import re
from dataclasses import dataclass, replace

import pytest
import torch

from masil.backbones import JOINT, ActivationStore, create
from masil.benchmark import Entry, Setting, bench, left_out, run
from masil.errors import InputError
from masil.methods import METHODS
from masil.methods.network import BlockMethod
from masil.training import Recipe

TINY = Recipe(name="tiny", backbone="resnet20", width=0.5, framing=(16, 16), stages=((1, 16),), batch=8, compile=False)
ALL = [Entry.of(name) for name in METHODS]
BLOCKS = {name for name, method in METHODS.items() if method.trains == "network"}
OF_THEIR_OWN = {"ssfe-net", "masil-as-written", "cf-as-written"}


def test_all_leaves_out_what_cannot_be_played_and_what_is_hardly_itself(setting):
    reasons = left_out(setting, ALL)
    assert set(reasons) == OF_THEIR_OWN | {"fact", "closer"}
    assert "this backbone has no base session of its own" in reasons["masil-as-written"]
    assert reasons["closer"] == "Of 'closer' D-Cosine is all that a shared backbone leaves."


def test_all_leaves_out_methods_of_residual_blocks_where_there_are_none(setting):
    without = replace(setting, backbone=create(f"efficientnet_lite0{JOINT}efficientnet_lite2", weights=None))
    reasons = left_out(without, ALL)
    assert set(reasons) == OF_THEIR_OWN | {"fact", "closer"} | BLOCKS
    assert all("no residual blocks" in reasons[name] for name in BLOCKS)


def test_with_a_recipe_every_method_is_played_that_its_network_suits(setting):
    assert left_out(setting, ALL, TINY) == {}
    assert left_out(setting, ALL, replace(TINY, backbone="efficientnet_lite0", width=1.0)) == {}
    other = replace(TINY, backbone=f"efficientnet_lite0{JOINT}efficientnet_lite2", width=1.0)
    assert set(left_out(setting, ALL, other)) == {"topic", "idlvq"}  # they would train one, the others share a ResNet


@pytest.mark.parametrize("name", ["ssfe-net", "ssfe-net+balance", "masil-as-written"])
def test_a_method_that_is_named_is_refused_before_anything_is_extracted(name, setting, tmp_path):
    said = "is a way to train the base session|needs a base session"
    with pytest.raises(InputError, match=said):
        run(setting, name, 1)
    grid = bench(setting, [name], 1, out=tmp_path)
    assert re.search(said, grid.failed[name, 0])
    assert setting.store.asked == []


@dataclass(kw_only=True)
class Compares(BlockMethod):
    """Checks that what it is given is what it makes of the images itself."""

    name, title, citation = "compares", "Compares", "none"
    worst = [0.0]  # noqa: RUF012

    def fit(self, base, task):
        self.take_network(base, task)
        self._compare(base)

    def learn(self, shots):
        self._compare(shots)

    def scores(self, queries):
        self._compare(queries)
        return torch.eye(6)[torch.zeros(len(queries), dtype=torch.int64)]

    def _compare(self, queries):
        made = self.block.run(self.entering(queries))
        self.worst.append(float((made - queries.activations).abs().max() / made.abs().max()))


def test_what_a_method_makes_of_images_is_what_it_is_given_whatever_the_views(patterns, tmp_path):
    shape, dataset = patterns
    setting = Setting(
        shape, dataset, create("resnet20", width=0.5, framing=(16, 16)), "none", views=2, device="cpu",
        store=ActivationStore(tmp_path),
    )  # fmt: skip
    record = run(setting, Compares, 1)
    assert max(Compares.worst) < 1e-4
    assert record.views == 1
    assert run(setting, "d-cosine", 1).views == 2
