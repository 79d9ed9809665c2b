from dataclasses import replace
from pathlib import Path

import pytest
import torch

from masil.backbones import create
from masil.benchmark import Setting, prepare
from masil.data import Dataset
from masil.errors import InputError, StorageError, UnknownNameError
from masil.protocol import Protocol
from masil.training import Recipe, train

TINY = Recipe(name="tiny", backbone="resnet20", width=0.5, framing=(16, 16), stages=((1, 16),), batch=8, compile=False)


@pytest.fixture
def known(setting: Setting) -> tuple[Protocol, Dataset]:
    return setting.protocol, setting.dataset


def test_names_that_are_not_known_are_suggested() -> None:
    with pytest.raises(UnknownNameError, match="There is no protocol called 'cub'; did you mean 'cub200'?"):
        prepare("cub")
    with pytest.raises(UnknownNameError, match="There is no backbone called 'resnet21'; did you mean 'resnet20'?"):
        prepare("cub200", backbone="resnet21")
    with pytest.raises(UnknownNameError, match="There is no recipe called 'cub200-gentl'; did you mean"):
        prepare("cub200", recipe="cub200-gentl", folder="anywhere")


def test_a_backbone_of_ones_own_is_taken_as_it_is(known) -> None:
    net = create("resnet20", width=0.5)
    setting = prepare(known[0], dataset=known[1], backbone=net)
    assert setting.backbone is net
    assert setting.weights == net.fingerprint() == setting.fingerprint


def test_flip_averages_over_an_image_and_its_mirror_image(setting: Setting) -> None:
    images = setting.dataset.test
    plain = setting.activations(images).reshape(-1, 3, 4, 4)
    both = replace(setting, flip=True).activations(images)
    assert torch.allclose(both, ((plain + plain.flip(3)) / 2).flatten(1))


def test_the_checksum_is_of_images_and_labels(setting: Setting) -> None:
    dataset = setting.dataset
    assert replace(setting).checksum == setting.checksum
    relabelled = replace(dataset, test=dataset.test.relabel(dataset.test.labels.flip(0)))
    assert replace(setting, dataset=relabelled).checksum != setting.checksum
    fewer = replace(dataset, train=dataset.train.subset(slice(0, 40)))
    assert replace(setting, dataset=fewer).checksum != setting.checksum


def test_a_base_session_is_trained_and_its_folder_serves_again(known, tmp_path: Path) -> None:
    protocol, dataset = known
    trained = prepare(protocol, dataset=dataset, recipe=TINY, folder=tmp_path, device="cpu")
    assert trained.recipe == "tiny"
    assert trained.weights == trained.backbone.fingerprint()
    assert [row["epoch"] for row in trained.history] == [1]
    again = prepare(protocol, dataset=dataset, checkpoint=tmp_path, device="cpu")
    assert again.fingerprint == trained.fingerprint
    assert again.recipe == "tiny"


def test_a_checkpoint_of_another_protocol_is_refused(known, setting: Setting, tmp_path: Path) -> None:
    protocol, dataset = known
    three = dataset.train.subset(dataset.train.labels < 3)
    train(three, TINY, tmp_path / "three", device="cpu")
    with pytest.raises(InputError, match=r"is of another protocol: its recipe is 'tiny' and it knows 3 base classes; "
                                         r"'small' has 4\. Train one with: masil train small --out"):  # fmt: skip
        prepare(protocol, dataset=dataset, checkpoint=tmp_path / "three")
    four = dataset.train.subset(dataset.train.labels < 4)
    train(four, replace(TINY, name="cifar100-fast"), tmp_path / "cifar", device="cpu")
    with pytest.raises(InputError, match="is of another protocol: its recipe is 'cifar100-fast'"):
        prepare(protocol, dataset=dataset, checkpoint=tmp_path / "cifar")
    with pytest.raises(StorageError, match="There is no base session in"):
        prepare(protocol, dataset=dataset, checkpoint=tmp_path / "nowhere")


def test_a_checkpoint_of_other_base_classes_is_refused(known, tmp_path: Path) -> None:
    protocol, dataset = known
    prepare(protocol, dataset=dataset, recipe=TINY, folder=tmp_path, device="cpu")
    other = replace(protocol, order=tuple(reversed(range(protocol.classes))))
    with pytest.raises(InputError, match=r"trained on other base classes: class 0 is '\w+' there and '\w+' here"):
        prepare(other, dataset=dataset, checkpoint=tmp_path, device="cpu")


def test_recipe_checkpoint_and_folder_must_fit_together(known) -> None:
    with pytest.raises(InputError, match="give one of the two"):
        prepare(known[0], dataset=known[1], recipe=TINY, checkpoint="here", folder="there")
    with pytest.raises(InputError, match="Recipe 'tiny' trains a base session, which needs a folder"):
        prepare(known[0], dataset=known[1], recipe=TINY)
