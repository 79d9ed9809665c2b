import numpy as np
import pytest
import torch

import masil.methods  # noqa: F401  brings its losses
from masil.errors import DataError, InputError
from masil.training import Mixing, Monitoring
from masil.training.batches import Batches, count_classes, mixed, seeded, turned

CPU = torch.device("cpu")


def test_a_batch_follows_from_seed_epoch_and_step(patterns, tiny):
    one, other = (Batches(patterns(), tiny(mixing=Mixing(mixup=0.5, cutmix=0.5)), 16, CPU) for _ in range(2))
    order = one.order(1)
    _ = one(1, 0, order)  # what was drawn before does not matter
    for ours, theirs in zip(one(1, 2, order), other(1, 2, other.order(1)), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(one(1, 2, order).pixels, one(1, 1, order).pixels)
    assert not torch.equal(one.order(0), one.order(1))


def test_an_epoch_shows_every_image_once_in_the_size_of_its_stage(patterns, tiny):
    batches = Batches(patterns(), tiny(), 16, CPU)
    epoch = [batches(0, step, batches.order(0)) for step in range(batches.steps)]
    assert torch.cat([batch.labels for batch in epoch]).bincount().tolist() == [24] * 4
    assert batches.order(0).sort().values.tolist() == list(range(96))
    assert epoch[0].pixels.shape == (16, 3, 8, 8)
    assert batches(2, 0, batches.order(2)).pixels.shape == (16, 3, 16, 16)
    assert epoch[0].lam.tolist() == [1.0] * 16
    few = Batches(patterns(per_class=3), tiny(batch=512), 16, CPU)
    assert (few.batch, few.steps) == (12, 1)  # never larger than the data


def test_held_out_images_are_not_trained_on(patterns, tiny):
    images = patterns()
    batches = Batches(images, tiny(watch=Monitoring(holdout=5, nc_images=3)), 16, CPU)
    pixels, labels = batches.held_out
    assert labels.bincount().tolist() == [5] * 4
    assert batches.labels.bincount().tolist() == [19] * 4
    held, trained = ({image.numpy().tobytes() for image in part} for part in (pixels, batches.pixels))
    assert not held & trained
    assert len(held | trained) == len(images)
    assert batches.labels[batches.watched].bincount().tolist() == [3] * 4
    with pytest.raises(DataError, match="Class 0 has 3 images; with 2 held out fewer than 2 are left"):
        Batches(patterns(per_class=3), tiny(watch=Monitoring(holdout=2)), 16, CPU)


def test_mixing_happens_as_often_as_asked():
    pixels, labels = torch.rand(4, 3, 4, 4, generator=seeded(1)), torch.arange(4)
    changed = [
        bool((mixed(pixels, labels, Mixing(mixup=0.25, cutmix=0.25), seeded(i)).lam < 1).any()) for i in range(400)
    ]
    assert 0.4 < np.mean(changed) < 0.6
    batch = mixed(pixels, labels, Mixing(mixup=1.0), seeded(5))
    expected = torch.lerp(pixels[batch.partners], pixels, batch.lam[:, None, None, None])
    torch.testing.assert_close(batch.pixels, expected)


def test_what_cannot_be_learnt_from_is_said(patterns):
    images = patterns()
    alone = images.labels.clone()
    alone[7] = 4
    for wrong, sentence in (
        (images.subset([]), "no images to train on"),
        (images.relabel(images.labels + 1), r"without gaps, but the 4 classes here have labels from 1 to 4"),
        (images.relabel(torch.zeros(len(images))), "only one class"),
        (images.relabel(alone), r"Class 4 has one image \(array\[7\]\)"),
    ):
        with pytest.raises((DataError, InputError), match=sentence):
            count_classes(wrong)


def test_the_key_knows_images_labels_and_size(patterns, tiny):
    images = patterns()
    swapped = images.relabel((images.labels + 1) % 4)
    keys = {Batches(data, tiny(), side, CPU).key for data, side in ((images, 16), (images, 12), (swapped, 16))}
    keys.add(Batches(patterns(seed=1), tiny(), 16, CPU).key)
    assert len(keys) == 4


def test_fused_images_are_of_virtual_classes(patterns, tiny):
    batches = Batches(patterns(), tiny(loss={"name": "alice", "fused": 1.0}), 16, CPU)
    labels = torch.cat([batches(0, step, batches.order(0)).labels for step in range(batches.steps)])
    assert int(labels.max()) < 4 + 6
    assert float((labels >= 4).float().mean()) > 0.5


def test_turned_images_become_virtual_classes():
    pixels = torch.arange(8 * 3 * 4 * 4, dtype=torch.uint8).reshape(8, 3, 4, 4)
    labels = torch.arange(8) % 2
    found, virtual = turned(pixels, labels, 1.0, 2, generator=seeded(0))
    assert set((virtual // 2).tolist()) <= {1, 2, 3}
    assert torch.equal(virtual % 2, labels)
    for image, original, quarter in zip(found, pixels, virtual // 2, strict=True):
        assert torch.equal(image, original.rot90(int(quarter), (1, 2)))
    still, same = turned(pixels, labels, 0.0, 2, generator=seeded(0))
    assert torch.equal(still, pixels)
    assert torch.equal(same, labels)
