import dataclasses
import json
import logging
import math
import re
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn import functional

from masil.backbones import create
from masil.data import Augmentation, Framing, load
from masil.errors import DataError, DeviceError, InputError, StorageError, UnknownNameError
from masil.storage import commit
from masil.training import (
    RECIPES,
    Average,
    CosineLoss,
    DivergedError,
    FrameLoss,
    Mixing,
    Monitoring,
    Schedule,
    Sgd,
    TrainOptions,
    Tuning,
    compact,
    load_trained,
    train,
)
from masil.training.session import TrainingRun
from masil.training.trained import FILE, read_checkpoint, write_checkpoint


def run(images, recipe, folder, **given):
    own = {name: given.pop(name) for name in ("names", "backbone") if name in given}
    return train(images, recipe, folder, device="cpu", options=TrainOptions(**{"precision": "float32"} | given), **own)


def accuracy(result, images):
    side = result.backbone.framing.crop
    with torch.no_grad():
        found = result.backbone(result.backbone.preprocess(images.load(slice(None), Framing(side, side))))
        embedded = found if result.projection is None else result.projection(found)
    cosines = functional.normalize(embedded) @ functional.normalize(result.class_vectors).T
    return float((cosines.argmax(1) == images.labels).double().mean())


def same_weights(one, other):
    pairs = zip(one.backbone.state_dict().values(), other.backbone.state_dict().values(), strict=True)
    return torch.equal(one.class_vectors, other.class_vectors) and all(torch.equal(a, b) for a, b in pairs)


@pytest.fixture
def short(tiny):
    return tiny(stages=((1, 8),))


@pytest.mark.parametrize(
    "loss",
    [CosineLoss(), FrameLoss(embedding=16), CosineLoss(contrast=0.1, smoothing=0.1)],
    ids=["cosine", "dot", "all"],
)
def test_it_learns_what_can_be_learnt(patterns, tiny, tmp_path, loss):
    images = patterns(per_class=40)
    train_on, others = images.subset(range(96)), images.subset(range(96, 160))
    recipe = tiny(stages=((5, 8), (8, 16)), loss=loss.to_json(), average=Average("last", epochs=3))
    result = run(train_on, recipe, tmp_path)
    assert accuracy(result, others) > 0.9
    assert result.history[-1]["loss"] < 0.5 * result.history[0]["loss"]
    assert not result.backbone.training
    assert result.class_vectors.shape[0] == 4
    assert (result.projection is None) == (loss.name == "cosine")


def test_turned_and_mixed_images_leave_the_real_classes(patterns, tiny, tmp_path):
    recipe = tiny(rotated=0.5, mixing=Mixing(mixup=0.3, cutmix=0.3), stages=((1, 8),))
    assert run(patterns(), recipe, tmp_path).class_vectors.shape == (4, 32)


def test_each_epoch_leaves_a_row(patterns, tiny, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "masil.training"):
        result = run(patterns(), tiny(watch=Monitoring(holdout=4, nc_every=2, nc_images=4)), tmp_path)
    assert [row["pixels"] for row in result.history] == [8, 8, 16, 16]
    assert all(0 <= row["accuracy"] <= 1 and row["images_per_second"] > 0 for row in result.history)
    assert ["nc1" in row for row in result.history] == [False, True, False, True]
    said = [message for message in caplog.messages if message.startswith("epoch ")]
    assert len(said) == 4
    line = r"epoch 2/4 · 8 px · loss \d+\.\d{3} · held-out accuracy \d+\.\d % · NC1 \S+ · \d+ images/s · .+, .+ left"
    assert re.fullmatch(line, said[1])
    assert len(json.loads((tmp_path / "history.json").read_text())) == 4
    assert {row.get("commit", "")[:40] for row in result.history} == {commit()[0] or ""}  # which code trained it


def test_every_step_has_the_rate_of_the_schedule_with_its_restarts(patterns, tiny, tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr("masil.training.session.Optimiser.step", lambda _, factor: taken.append(factor))
    recipe = tiny(schedule=Schedule(shape="cosine", warmup=0.0, cycles=2), stages=((2, 8), (1, 16)))
    result = run(patterns(), recipe, tmp_path)
    assert taken == [recipe.schedule.factor(step, len(taken)) for step in range(len(taken))]
    assert len(taken) % 3 == 0  # of three epochs
    assert len(taken) > 3
    assert [later > earlier for earlier, later in pairwise(taken)].count(True) == 1
    ends = [taken[len(taken) // 3 * epoch - 1] for epoch in (1, 2, 3)]
    assert [row["lr"] for row in result.history] == pytest.approx([recipe.sgd.lr * end for end in ends], rel=1e-5)


def test_a_finished_run_answers_at_once_unless_it_is_to_start_again(patterns, short, tmp_path):
    first = run(patterns(), short, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRun, "run_epoch", lambda *_: pytest.fail("trained again"))
        assert same_weights(first, run(patterns(), short, tmp_path))
    assert same_weights(first, load_trained(tmp_path))
    (tmp_path / FILE).write_bytes(b"broken")
    with pytest.raises(StorageError, match="is damaged or not a checkpoint"):
        run(patterns(), short, tmp_path)
    assert len(run(patterns(), short, tmp_path, resume=False).history) == 1


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", ["none", "ema", "last"])
def test_an_interrupted_run_goes_on_to_the_same_weights(patterns, tiny, tmp_path, kind):
    recipe = tiny(average=Average(kind, epochs=2), tuning=Tuning(l2_sp=0.01), mixing=Mixing(mixup=0.5))
    whole = run(patterns(), recipe, tmp_path / "whole")
    saved = []

    def interrupt(session, keep=TrainingRun.save):
        keep(session)
        saved.append((session.epoch, session.step))
        if len(saved) in (3, 10):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRun, "save", interrupt)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                run(patterns(), recipe, tmp_path / "broken", checkpoint_steps=2)
    assert (saved[2], saved[9]) == ((1, 0), (3, 2))
    broken = run(patterns(), recipe, tmp_path / "broken")
    assert same_weights(whole, broken)
    losses = [[row["loss"] for row in result.history] for result in (whole, broken)]
    assert losses[0] == losses[1]


@pytest.mark.usefixtures("one_thread")
def test_seed_and_recipe_decide(patterns, short, tmp_path):
    changes: list[dict[str, Any]] = [{}, {}, {"seed": 1}, {"augmentation": Augmentation()}]
    first, *others = (
        run(patterns(), dataclasses.replace(short, **change), tmp_path / str(i)) for i, change in enumerate(changes)
    )
    assert [same_weights(first, other) for other in others] == [True, False, False]


def test_a_checkpoint_of_another_backbone_recipe_or_data_is_kept(patterns, short, tmp_path):
    run(patterns(), short, tmp_path)
    before = (tmp_path / FILE).read_bytes()
    other, longer = (
        dataclasses.replace(short, **changes)
        for changes in ({"backbone": "resnet18_cifar", "width": 0.125}, {"stages": ((2, 8),)})
    )
    for images, recipe, sentence in (
        (patterns(), other, "checkpoint of another backbone: name resnet20"),
        (patterns(), longer, r"another recipe \(stages"),
        (patterns(seed=1), short, "other images"),
    ):
        with pytest.raises(StorageError, match=sentence):
            run(images, recipe, tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize(
    ("value", "epoch", "sentence"),
    [
        ("nan", 2, r"loss became nan in epoch 3, step 1\. The last good checkpoint is kept in"),
        ("inf", 0, r"weight is not finite after epoch 0, step 1\. No checkpoint was written"),
    ],
)
def test_what_is_no_number_stops_and_keeps_the_last_good_checkpoint(
    patterns, tiny, tmp_path, monkeypatch, value, epoch, sentence
):
    def poisoned(session, *step, go=TrainingRun._train):
        def poison():
            session.network.head.vectors.data.fill_(float(value))  # type: ignore[union-attr]

        if value == "nan" and session.epoch == epoch:
            poison()
        loss = go(session, *step)
        if value == "inf":
            poison()
        return loss

    monkeypatch.setattr(TrainingRun, "_train", poisoned)
    with pytest.raises(DivergedError, match=sentence):
        run(patterns(), tiny(), tmp_path, checkpoint_steps=1 if value == "inf" else 0)
    kept = read_checkpoint(tmp_path)
    assert (0 if kept is None else kept.epoch) == epoch
    assert kept is None or all(torch.isfinite(tensor).all() for tensor in kept.tensors.values())


def test_an_absurd_rate_ends_in_a_sentence(patterns, tiny, tmp_path):
    with pytest.raises(DivergedError, match="Lower the learning rate"):
        run(patterns(), tiny(muon=None, sgd=Sgd(lr=1e30), stages=((3, 8),)), tmp_path)


def test_bad_input_is_said_before_anything_is_written(patterns, tiny, tmp_path):
    images = patterns()
    with pytest.raises(UnknownNameError, match="did you mean 'cifar100-fast'"):
        run(images, "cifar-100-fast", tmp_path)
    with pytest.raises(DeviceError, match="cuda"):
        train(images, tiny(), tmp_path, device="cuda:7")
    with pytest.raises(UnknownNameError, match="no precision called 'float23'; did you mean 'float32'"):
        train(images, tiny(), tmp_path, device="cpu", options=TrainOptions(precision="float23"))
    with pytest.raises(DataError, match="no images"):
        run(images.subset([]), tiny(), tmp_path)
    with pytest.raises(InputError, match="without gaps"):
        run(images.relabel(images.labels * 2), tiny(), tmp_path)
    with pytest.raises(InputError, match="simplex of 16 classes needs at least 15 features but there are 8"):
        run(images, tiny(rotated=0.5, loss=FrameLoss(embedding=8).to_json()), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_base_session_is_said(patterns, short, tiny, tmp_path):
    reads = (load_trained, lambda folder: compact(folder, tmp_path / "final"))
    for read in reads:
        with pytest.raises(StorageError, match="There is no base session in"):
            read(tmp_path)
    run(patterns(), short, tmp_path)
    unfinished = read_checkpoint(tmp_path)
    assert unfinished is not None
    write_checkpoint(tmp_path, dataclasses.replace(unfinished, recipe=tiny()))
    for read in reads:
        with pytest.raises(StorageError, match="has done 1 of 4 epochs"):
            read(tmp_path)
    assert not (tmp_path / "final").exists()


def test_a_backbone_of_ones_own_is_tuned_gently(patterns, tiny, tmp_path):
    own = create("resnet20", width=0.5, framing=(16, 16), seed=7)
    before = {name: value.clone() for name, value in own.state_dict().items()}
    tuning = Tuning(frozen=("conv1", "layer1"), freeze_batch_norm=True, rates={"": 0.1})
    recipe = tiny(stages=((1, 16),), tuning=tuning, loss=CosineLoss(start="means").to_json(), muon=None)
    result = run(patterns(), recipe, tmp_path, backbone=own)
    assert result.backbone is own
    changed = {name for name, value in own.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    convolutions = {name for name, value in before.items() if value.ndim == 4 and name.startswith(("layer2", "layer3"))}
    assert changed == convolutions


def test_a_longer_stage_is_compiled(patterns, tiny, tmp_path, monkeypatch):
    made: list[bool] = []
    sizes: list[int] = []

    def compiled(function, dynamic):
        made.append(dynamic)

        def run_compiled(x):
            sizes.append(x.shape[2])
            return function(x)

        return run_compiled

    monkeypatch.setattr("masil.training.compute.TRIAL_STEPS", 24)
    monkeypatch.setattr("masil.training.compute.torch.compile", compiled)
    monkeypatch.setattr("masil.training.compute.set_threads", lambda: 1)
    monkeypatch.setattr("masil.training.compute.probe", lambda: None)
    monkeypatch.setattr("masil.training.compute.found_precision", lambda *_: "float32")
    train(patterns(), tiny(stages=((1, 8), (4, 16))), tmp_path, device="cpu")
    assert made == [False]  # never with dynamic shapes
    # Of the 24 steps of the second stage: seven eager ones, seven compiled, then whichever was faster.
    assert len(sizes) in (7, 17)
    assert set(sizes) == {16}


def test_convolutions_are_timed_in_long_stages_and_a_resumed_run_keeps_the_choice(
    patterns, tiny, tmp_path, monkeypatch
):
    asked: list[tuple[tuple[int, int], dict[str, str]]] = []
    resumed: list[dict[str, str]] = []

    def choose(_backbone, shape, _cast, known):
        asked.append((shape, dict(known)))
        known["a layer"] = "dense"

    def restore(session, saved, go=TrainingRun.restore):
        go(session, saved)
        resumed.append(session.forms)

    monkeypatch.setattr("masil.training.compute.TRIAL_STEPS", 12)
    monkeypatch.setattr("masil.training.session.choose_forms", choose)
    monkeypatch.setattr(TrainingRun, "restore", restore)
    recipe = tiny(stages=((1, 8), (2, 16)), compile=False)  # six steps an epoch
    for _ in range(2):
        run(patterns(), recipe, tmp_path)
    assert asked == [((16, 16), {}), ((16, 16), {"a layer": "dense"})]  # of 16 images of 16 px
    assert resumed == [{"a layer": "dense"}]


def test_epochs_fill_the_hours_that_are_given(patterns, tiny, short, tmp_path, monkeypatch):
    timed = run(patterns(), short, tmp_path / "timed", hours=1e-9)  # by steps of its own network
    assert timed.recipe.stages == ((1, 8),)
    recipe = tiny(stages=((2, 8), (1, 16)))
    monkeypatch.setattr("masil.training.session.TrainingRun.epoch_seconds", lambda self, px: {8: 1.0, 16: 4.0}[px])
    result = run(patterns(), recipe, tmp_path, hours=18 / 3600)
    assert result.recipe.stages == ((6, 8), (3, 16))  # three times two seconds and once four
    assert result.recipe.name == f"{recipe.name} epochs=9"
    again = run(patterns(), recipe, tmp_path, hours=99)  # it was begun, and is finished
    assert same_weights(result, again)
    for wrong in (0, math.nan, math.inf):
        with pytest.raises(InputError, match=f"Training is to take {wrong} hours; give a time above 0"):
            TrainOptions(hours=wrong)
    with pytest.raises(InputError, match="`checkpoint_steps` is -1, but must be at least 0"):
        TrainOptions(checkpoint_steps=-1)


@pytest.mark.data
def test_real_images_are_learnt_from(data_folder, tmp_path):
    images = load("cifar100", data_folder).train
    some = torch.cat([(images.labels == label).nonzero().flatten()[:40] for label in range(5)])
    recipe = dataclasses.replace(
        RECIPES["cifar100-fast"], width=0.25, stages=((4, 16),), batch=40, watch=Monitoring(holdout=8, nc_every=0)
    )
    result = train(images.subset(some), recipe, tmp_path, device="cpu", options=TrainOptions(precision="float32"))
    assert result.history[-1]["loss"] < result.history[0]["loss"]


@pytest.mark.parametrize("average", ["none", "last"])
def test_a_compact_copy_is_the_same_base_session_in_half_precision(patterns, tiny, tmp_path, average):
    images = patterns()
    result = run(images, tiny(average=Average(average, epochs=1)), tmp_path)
    path = compact(tmp_path, tmp_path / "final")
    again = load_trained(tmp_path / "final")
    assert path.stat().st_size < (tmp_path / "checkpoint.safetensors").stat().st_size / 2
    assert again.recipe == result.recipe
    assert again.history == result.history
    for key, value in again.backbone.state_dict().items():
        original = result.backbone.state_dict()[key]
        assert value.dtype == original.dtype
        torch.testing.assert_close(value, original, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(again.class_vectors, result.class_vectors, rtol=1e-3, atol=1e-4)


def test_two_base_sessions_together_are_one_encoder(patterns, tiny, tmp_path):
    images, names = patterns(), [f"class {i}" for i in range(4)]
    parts = []
    for seed in (0, 1):
        train(images, tiny(name=f"tiny-{seed}", seed=seed), tmp_path / str(seed), names=names, device="cpu")
        parts.append(load_trained(tmp_path / str(seed)))
    both = load_trained(f"{tmp_path / '0'}+{tmp_path / '1'}")
    assert (both.recipe.name, both.names, len(both.history)) == ("tiny-0 and tiny-1", tuple(names), 8)
    assert torch.equal(both.class_vectors, torch.cat([part.class_vectors for part in parts], 1))
    with torch.inference_mode():
        x = torch.from_numpy(images.source.pixels[:6])
        rows = [part.backbone(part.backbone.preprocess(x)) for part in parts]
        seen = both.backbone(both.backbone.preprocess(x))
    torch.testing.assert_close(seen, torch.cat(rows, 1))


def test_base_sessions_of_other_classes_cannot_be_joined(patterns, tiny, tmp_path):
    short = tiny(stages=((1, 8),))
    train(patterns(), short, tmp_path / "a", device="cpu")
    train(patterns(), short, tmp_path / "named", names="abcd", device="cpu")
    train(patterns(), short, tmp_path / "otherwise", names="abdc", device="cpu")
    for pair in (f"{tmp_path / 'a'}+{tmp_path / 'named'}", f"{tmp_path / 'named'}+{tmp_path / 'a'}"):
        assert load_trained(pair).names == tuple("abcd")  # an older one has no names
    with pytest.raises(InputError, match="are of different classes"):
        load_trained(f"{tmp_path / 'named'}+{tmp_path / 'otherwise'}")
    train(patterns(classes=3), short, tmp_path / "b", device="cpu")
    with pytest.raises(InputError, match="are of different classes, so no encoder can be made of them"):
        load_trained(f"{tmp_path / 'a'}+{tmp_path / 'b'}")
    train(patterns(), tiny(stages=((1, 8),), loss=FrameLoss().to_json()), tmp_path / "c", device="cpu")
    with pytest.raises(InputError, match="have projections or frames of their own"):
        load_trained(f"{tmp_path / 'a'}+{tmp_path / 'c'}")
    with pytest.raises(StorageError, match="There is no base session in .*nowhere"):
        load_trained(f"{tmp_path / 'a'}+{tmp_path / 'nowhere'}")
