import dataclasses
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from masil.backbones import create
from masil.data import ArrayImages, Augmentation, Framing, load
from masil.errors import DataError, DeviceError, InputError, StorageError, UnknownNameError
from masil.training import (
    RECIPES,
    Average,
    BaseLoss,
    CosineLoss,
    DivergedError,
    FrameLoss,
    Mixing,
    Recipe,
    Sgd,
    Trained,
    Tuning,
    Watch,
    compact,
    load_trained,
    save_weights,
    train,
)
from masil.training.checkpoint import FILE, read_checkpoint
from masil.training.session import TrainingRun

Make = Callable[..., Recipe]
Patterns = Callable[..., ArrayImages]


def run(images: ArrayImages, recipe: Recipe | str, folder: Path, **options: object) -> Trained:
    return train(images, recipe, folder, device="cpu", precision="float32", **options)  # type: ignore[arg-type]


def accuracy(result: Trained, images: ArrayImages) -> float:
    side = result.backbone.framing.crop
    with torch.no_grad():
        found = result.backbone(result.backbone.preprocess(images.load(slice(None), Framing(side, side))))
        embedded = found if result.projection is None else result.projection(found)
    cosines = functional.normalize(embedded) @ functional.normalize(result.class_vectors).T
    return float((cosines.argmax(1) == images.labels).double().mean())


def same_weights(one: Trained, other: Trained) -> bool:
    pairs = zip(one.backbone.state_dict().values(), other.backbone.state_dict().values(), strict=True)
    return torch.equal(one.class_vectors, other.class_vectors) and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    "loss",
    [
        CosineLoss(),
        FrameLoss(embedding=16),
        CosineLoss(contrast=0.1, smoothing=0.1),
    ],
    ids=["cosine", "dot", "all"],
)
def test_it_learns_what_can_be_learnt(patterns: Patterns, tiny: Make, tmp_path: Path, loss: BaseLoss) -> None:
    images = patterns(per_class=40)
    train_on, others = images.subset(range(96)), images.subset(range(96, 160))
    recipe = tiny(stages=((5, 8), (8, 16)), loss=loss.to_json(), average=Average("last", epochs=3))
    result = run(train_on, recipe, tmp_path)
    assert accuracy(result, others) > 0.9
    assert result.history[-1]["loss"] < 0.5 * result.history[0]["loss"]
    assert not result.backbone.training
    assert result.class_vectors.shape[0] == 4
    assert (result.projection is None) == (loss.name == "cosine")


def test_turned_and_mixed_images_leave_the_real_classes(patterns: Patterns, tiny: Make, tmp_path: Path) -> None:
    recipe = tiny(rotated=0.5, mixing=Mixing(mixup=0.3, cutmix=0.3), stages=((1, 8),))
    assert run(patterns(), recipe, tmp_path).class_vectors.shape == (4, 32)


def test_each_epoch_leaves_a_row(
    patterns: Patterns, tiny: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "masil.training"):
        result = run(patterns(), tiny(watch=Watch(holdout=4, nc_every=2, nc_images=4)), tmp_path)
    assert [row["pixels"] for row in result.history] == [8, 8, 16, 16]
    assert all(0 <= row["accuracy"] <= 1 and row["images_per_second"] > 0 for row in result.history)
    assert ["nc1" in row for row in result.history] == [False, True, False, True]
    assert sum(message.startswith("epoch ") for message in caplog.messages) == 4
    assert len(json.loads((tmp_path / "history.json").read_text())) == 4


def test_a_finished_run_answers_at_once(
    patterns: Patterns, tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(patterns(), tiny(stages=((1, 8),)), tmp_path)
    monkeypatch.setattr(TrainingRun, "run_epoch", lambda *_: pytest.fail("trained again"))
    assert same_weights(first, run(patterns(), tiny(stages=((1, 8),)), tmp_path))
    assert same_weights(first, load_trained(tmp_path))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", ["none", "ema", "last"])
def test_an_interrupted_run_goes_on_to_the_same_weights(
    patterns: Patterns, tiny: Make, tmp_path: Path, kind: str
) -> None:
    recipe = tiny(average=Average(kind, epochs=2), tuning=Tuning(l2_sp=0.01), mixing=Mixing(mixup=0.5))
    whole = run(patterns(), recipe, tmp_path / "whole")
    saved = []

    def interrupt(session: TrainingRun, keep: Callable[[TrainingRun], None] = TrainingRun.save) -> None:
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
def test_the_seed_decides(patterns: Patterns, tiny: Make, tmp_path: Path) -> None:
    results = [
        run(patterns(), tiny(stages=((1, 8),), seed=seed), tmp_path / str(i)) for i, seed in enumerate((0, 0, 1))
    ]
    assert same_weights(results[0], results[1])
    assert not same_weights(results[0], results[2])


def test_starting_again_forgets_the_checkpoint(patterns: Patterns, tiny: Make, tmp_path: Path) -> None:
    run(patterns(), tiny(stages=((1, 8),)), tmp_path)
    (tmp_path / FILE).write_bytes(b"broken")
    with pytest.raises(StorageError, match="damaged or truncated"):
        run(patterns(), tiny(stages=((1, 8),)), tmp_path)
    assert len(run(patterns(), tiny(stages=((1, 8),)), tmp_path, resume=False).history) == 1


def test_a_checkpoint_of_another_backbone_recipe_or_data_is_kept(
    patterns: Patterns, tiny: Make, tmp_path: Path
) -> None:
    run(patterns(), tiny(stages=((1, 8),)), tmp_path)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StorageError, match="checkpoint of another backbone: name resnet20"):
        run(patterns(), tiny(stages=((1, 8),), backbone="resnet18_cifar", width=0.125), tmp_path)
    with pytest.raises(StorageError, match=r"another recipe \(stages"):
        run(patterns(), tiny(stages=((2, 8),)), tmp_path)
    with pytest.raises(StorageError, match="other images"):
        run(patterns(seed=1), tiny(stages=((1, 8),)), tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(
    patterns: Patterns, tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny()

    def poisoned(
        session: TrainingRun, step: int, order: torch.Tensor, go: Callable[..., float] = TrainingRun._train
    ) -> float:
        if session.epoch == 2:
            session.network.head.vectors.data.fill_(float("nan"))  # type: ignore[union-attr]
        return go(session, step, order)

    monkeypatch.setattr(TrainingRun, "_train", poisoned)
    with pytest.raises(
        DivergedError, match=r"loss became nan in epoch 3, step 1\. The last good checkpoint is kept in"
    ):
        run(patterns(), recipe, tmp_path)
    kept = read_checkpoint(tmp_path)
    assert kept is not None
    assert kept.epoch == 2
    assert all(torch.isfinite(value).all() for value in kept.tensors.values())


def test_weights_that_are_no_numbers_are_not_saved(
    patterns: Patterns, tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(
        session: TrainingRun, step: int, order: torch.Tensor, go: Callable[..., float] = TrainingRun._train
    ) -> float:
        value = go(session, step, order)
        session.network.head.vectors.data.fill_(float("inf"))  # type: ignore[union-attr]
        return value

    monkeypatch.setattr(TrainingRun, "_train", poisoned)
    with pytest.raises(DivergedError, match=r"weight is not finite after epoch 0, step 1\. No checkpoint was written"):
        run(patterns(), tiny(), tmp_path, checkpoint_steps=1)
    assert not (tmp_path / FILE).exists()


def test_an_absurd_rate_ends_in_a_sentence(patterns: Patterns, tiny: Make, tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match="Lower the learning rate"):
        run(patterns(), tiny(muon=None, sgd=Sgd(lr=1e30), stages=((3, 8),)), tmp_path)


def test_bad_input_is_said_before_anything_is_written(patterns: Patterns, tiny: Make, tmp_path: Path) -> None:
    images = patterns()
    with pytest.raises(UnknownNameError, match="did you mean 'cifar100-fast'"):
        run(images, "cifar-100-fast", tmp_path)
    with pytest.raises(DeviceError, match="cuda"):
        train(images, tiny(), tmp_path, device="cuda:7")
    with pytest.raises(InputError, match="no precision called 'float23'; did you mean 'float32'"):
        train(images, tiny(), tmp_path, device="cpu", precision="float23")
    with pytest.raises(DataError, match="no images"):
        run(images.subset([]), tiny(), tmp_path)
    with pytest.raises(InputError, match="without gaps"):
        run(images.relabel(images.labels * 2), tiny(), tmp_path)
    with pytest.raises(InputError, match="simplex of 16 classes needs at least 15 features but there are 8"):
        run(images, tiny(rotated=0.5, loss=FrameLoss(embedding=8).to_json()), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_base_session_is_said(patterns: Patterns, tiny: Make, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="There is no base session in"):
        load_trained(tmp_path)
    run(patterns(), tiny(stages=((1, 8),)), tmp_path)
    unfinished = read_checkpoint(tmp_path)
    assert unfinished is not None
    from masil.training.checkpoint import write_checkpoint

    write_checkpoint(tmp_path, dataclasses.replace(unfinished, recipe=tiny()))
    with pytest.raises(StorageError, match="has done 1 of 4 epochs"):
        load_trained(tmp_path)


def test_a_backbone_of_ones_own_is_tuned_gently(patterns: Patterns, tiny: Make, tmp_path: Path) -> None:
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


def test_weights_are_exported_in_half_and_read_again(patterns: Patterns, tiny: Make, tmp_path: Path) -> None:
    result = run(patterns(), tiny(stages=((1, 8),)), tmp_path)
    for half, tolerance in ((True, 2e-3), (False, 0.0)):
        save_weights(result.backbone, tmp_path / "weights.safetensors", half=half)
        again = create("resnet20", width=0.5, framing=(16, 16), weights=tmp_path / "weights.safetensors")
        for one, other in zip(result.backbone.state_dict().values(), again.state_dict().values(), strict=True):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def test_a_longer_stage_is_compiled(
    patterns: Patterns, tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []
    sizes: list[int] = []

    def compiled(function: Callable[[torch.Tensor], torch.Tensor], dynamic: bool) -> Callable[..., torch.Tensor]:
        made.append(dynamic)

        def run_compiled(x: torch.Tensor) -> torch.Tensor:
            sizes.append(x.shape[2])
            return function(x)

        return run_compiled

    monkeypatch.setattr("masil.training.compute.COMPILE_STEPS", 24)
    monkeypatch.setattr("masil.training.compute.torch.compile", compiled)
    monkeypatch.setattr("masil.training.compute.set_threads", lambda: 1)
    monkeypatch.setattr("masil.training.compute.probe", lambda: None)
    monkeypatch.setattr("masil.training.compute.found_precision", lambda *_: "float32")
    train(patterns(), tiny(stages=((1, 8), (4, 16))), tmp_path, device="cpu")
    assert made == [False]  # never with dynamic shapes
    # Of the 24 steps of the second stage: seven eager ones, seven compiled, then whichever was faster.
    assert len(sizes) in (7, 17)
    assert set(sizes) == {16}


def test_epochs_fill_the_hours_that_are_given(patterns: Patterns, tiny: Make, tmp_path: Path, monkeypatch) -> None:
    recipe = tiny(stages=((2, 8), (1, 16)))
    monkeypatch.setattr("masil.training.session.TrainingRun.epoch_seconds", lambda self, px: {8: 1.0, 16: 4.0}[px])
    result = run(patterns(), recipe, tmp_path, hours=18 / 3600)
    assert result.recipe.stages == ((6, 8), (3, 16))  # three times two seconds and once four
    again = run(patterns(), recipe, tmp_path, hours=99)  # it was begun, and is finished
    assert same_weights(result, again)
    with pytest.raises(InputError, match="Training is to take 0 hours; give a time above 0"):
        run(patterns(), recipe, tmp_path / "other", hours=0)


def test_an_epoch_is_timed_by_steps_of_its_own_network(patterns: Patterns, tiny: Make, tmp_path: Path) -> None:
    result = run(patterns(), tiny(stages=((1, 8),)), tmp_path, hours=1e-9)
    assert result.recipe.stages == ((1, 8),)


@pytest.mark.data
def test_real_images_are_learnt_from(data_folder: str, tmp_path: Path) -> None:
    images = load("cifar100", data_folder).train
    some = torch.cat([(images.labels == label).nonzero().flatten()[:40] for label in range(5)])
    recipe = dataclasses.replace(
        RECIPES["cifar100-fast"], width=0.25, stages=((4, 16),), batch=40, watch=Watch(holdout=8, nc_every=0)
    )
    result = train(images.subset(some), recipe, tmp_path, device="cpu", precision="float32")
    assert result.history[-1]["loss"] < result.history[0]["loss"]


def test_augmentation_is_part_of_the_recipe(patterns: Patterns, tiny: Make, tmp_path: Path) -> None:
    plain = tiny(stages=((1, 8),), augmentation=Augmentation())
    assert not same_weights(
        run(patterns(), plain, tmp_path / "a"), run(patterns(), tiny(stages=((1, 8),)), tmp_path / "b")
    )


@pytest.mark.parametrize("average", ["none", "last"])
def test_a_compact_copy_is_the_same_base_session_in_half_precision(
    patterns: Patterns, tiny: Make, tmp_path: Path, average: str
) -> None:
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


def test_an_unfinished_base_session_has_no_compact_copy(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="There is no base session in"):
        compact(tmp_path, tmp_path / "final")
    assert not (tmp_path / "final").exists()
