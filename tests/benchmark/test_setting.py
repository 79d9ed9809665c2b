from dataclasses import replace

import pytest
import torch

from masil.backbones import create
from masil.benchmark import Origin, bench, prepare
from masil.errors import InputError, StorageError, UnknownNameError
from masil.training import Monitoring, MuonSettings, Recipe, train

TINY = Recipe(name="tiny", backbone="resnet20", width=0.5, framing=(16, 16), stages=((1, 16),), batch=8, compile=False)


@pytest.fixture
def known(setting):
    return setting.protocol, setting.dataset


def test_names_that_are_not_known_are_suggested():
    with pytest.raises(UnknownNameError, match="There is no protocol called 'cub'; did you mean 'cub200'?"):
        prepare("cub")
    with pytest.raises(UnknownNameError, match="There is no backbone called 'resnet21'; did you mean 'resnet20'?"):
        prepare("cub200", Origin(backbone="resnet21"))
    with pytest.raises(InputError, match=r"sets of 1, 2, 6, 10 views, not of 3"):
        prepare("cub200", views=3)
    with pytest.raises(UnknownNameError, match="There is no recipe called 'cub200-gentl'; did you mean"):
        prepare("cub200", Origin(recipe="cub200-gentl", folder="anywhere"))


def test_a_backbone_of_ones_own_is_taken_as_it_is(known):
    net = create("resnet20", width=0.5)
    setting = prepare(known[0], Origin(backbone=net), dataset=known[1])
    assert setting.backbone is net
    assert setting.weights == net.fingerprint() == setting.fingerprint


def test_flip_averages_over_an_image_and_its_mirror_image(setting):
    images = setting.dataset.test
    plain = setting.activations(images).reshape(-1, 3, 4, 4)
    both = replace(setting, views=2).activations(images)
    assert torch.allclose(both, ((plain + plain.flip(3)) / 2).flatten(1))


def test_the_checksum_is_of_images_and_labels(setting):
    dataset = setting.dataset
    assert replace(setting).checksum == setting.checksum
    relabelled = replace(dataset, test=dataset.test.relabel(dataset.test.labels.flip(0)))
    assert replace(setting, dataset=relabelled).checksum != setting.checksum
    fewer = replace(dataset, train=dataset.train.subset(slice(0, 40)))
    assert replace(setting, dataset=fewer).checksum != setting.checksum


def test_a_base_session_is_trained_and_its_folder_serves_again(known, tmp_path):
    protocol, dataset = known
    trained = prepare(protocol, Origin(recipe=TINY, folder=tmp_path), dataset=dataset, device="cpu")
    assert trained.recipe == "tiny"
    assert trained.weights == trained.backbone.fingerprint()
    assert [row["epoch"] for row in trained.history] == [1]
    again = prepare(protocol, Origin(checkpoint=tmp_path), dataset=dataset, device="cpu")
    assert again.fingerprint == trained.fingerprint
    assert again.recipe == "tiny"


def test_a_checkpoint_of_another_protocol_is_refused(known, setting, tmp_path):
    protocol, dataset = known
    three = dataset.train.subset(dataset.train.labels < 3)
    train(three, TINY, tmp_path / "three", device="cpu")
    with pytest.raises(InputError, match=r"is of another protocol: its recipe is 'tiny' and it knows 3 base classes; "
                                         r"'small' has 4\. Train one with: masil run PROTOCOL --recipe"):  # fmt: skip
        prepare(protocol, Origin(checkpoint=tmp_path / "three"), dataset=dataset)
    four = dataset.train.subset(dataset.train.labels < 4)
    train(four, replace(TINY, name="cifar100-fast"), tmp_path / "cifar", device="cpu")
    with pytest.raises(InputError, match="is of another protocol: its recipe is 'cifar100-fast'"):
        prepare(protocol, Origin(checkpoint=tmp_path / "cifar"), dataset=dataset)
    with pytest.raises(StorageError, match="There is no base session in"):
        prepare(protocol, Origin(checkpoint=tmp_path / "nowhere"), dataset=dataset)


def test_a_checkpoint_of_other_base_classes_is_refused(known, tmp_path):
    protocol, dataset = known
    prepare(protocol, Origin(recipe=TINY, folder=tmp_path), dataset=dataset, device="cpu")
    other = replace(protocol, order=tuple(reversed(range(protocol.classes))))
    with pytest.raises(InputError, match=r"trained on other base classes: class 0 is '\w+' there and '\w+' here"):
        prepare(other, Origin(checkpoint=tmp_path), dataset=dataset, device="cpu")


def test_recipe_checkpoint_and_folder_must_fit_together(known):
    with pytest.raises(InputError, match="give one of the two"):
        prepare(known[0], Origin(recipe=TINY, checkpoint="here", folder="there"), dataset=known[1])
    with pytest.raises(InputError, match="Recipe 'tiny' trains a base session, which needs a folder"):
        prepare(known[0], Origin(recipe=TINY), dataset=known[1])


OWN = ["nc-fscil", "learnable-ce", "d-negcosine", "alice", "fact", "icarl"]


def test_a_grid_with_a_recipe_trains_each_in_its_own_way(patterns, tmp_path, caplog):
    shape, dataset = patterns
    usual = Recipe(
        "patterns", ((2, 8),), backbone="resnet20", width=0.25, framing=(8, 8), batch=16, compile=False,
        muon=MuonSettings(lr=0.02), watch=Monitoring(nc_every=0),
    )  # fmt: skip
    setting = prepare(shape, Origin(recipe=usual, folder=tmp_path / "base"), dataset=dataset, device="cpu")
    records = bench(setting, ["d-cosine", *OWN], 1, out=tmp_path / "out", recipe=usual, workers=1).runs
    assert {record.method: record.recipe for record in records} == {
        "d-cosine": "patterns",
        **{name: f"patterns+{name}" for name in OWN},
    }
    assert len({record.weights for record in records}) == 1 + len(OWN)
    again = prepare(shape, Origin(checkpoint=tmp_path / "out" / "base-alice"), dataset=dataset, device="cpu")
    assert again.trained_for == "alice"
    (shared,) = bench(setting, ["alice"], 1, out=tmp_path / "shared", workers=1).runs
    assert shared.recipe == "patterns"
    assert "'alice' trains a base session of its own, but has the shared backbone here" in caplog.text
