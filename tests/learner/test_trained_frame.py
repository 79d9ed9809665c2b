"""A trained frame's vectors go to the classes they were trained for, whatever order names sort in."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch.nn.functional import normalize as unit

from masil.data import Augmentation, Images, array_images
from masil.errors import InputError, StorageError
from masil.learner import Masil, export_onnx, tune
from masil.training import FrameLoss, Monitoring, MuonSettings, Recipe, Sgd, Trained, compact, load_trained, train

CLASSES = 12  # so that "class 10" and "class 11" sort before "class 2"
NAMES = tuple(f"class {number}" for number in range(CLASSES))
SHUFFLED = tuple(np.random.default_rng(3).permutation(NAMES).tolist())
RECIPE = Recipe(
    name="tiny", stages=((6, 16),), backbone="resnet20", width=0.5, framing=(16, 16), batch=16, sgd=Sgd(lr=0.05),
    muon=MuonSettings(lr=0.05), augmentation=Augmentation(crop="pad", pad=1), watch=Monitoring(nc_every=0),
    loss=FrameLoss(embedding=16).to_json(), compile=False,
)  # fmt: skip


def patterns(per_class: int, seed: int) -> Images:
    """Twelve coloured patterns under noise, the images of all classes mixed."""
    coarse = np.random.default_rng(0).integers(0, 255, (CLASSES, 3, 4, 4)).repeat(4, 2).repeat(4, 3)
    draw = np.random.default_rng(seed)
    labels = draw.permutation(np.arange(CLASSES * per_class) % CLASSES)
    noisy = coarse[labels] + draw.normal(0, 40, (len(labels), 3, 16, 16))
    return array_images(noisy.clip(0, 255).astype(np.uint8), torch.from_numpy(labels))


def named(images: Images, names: tuple[str, ...] = NAMES) -> list[str]:
    return [names[label] for label in images.labels.tolist()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("base")


@pytest.fixture(scope="module")
def trained(folder: Path) -> Trained:
    """A base session without names, as all were before they were kept."""
    return train(patterns(16, 1), RECIPE, folder, device="cpu")


def learner(trained: Trained, **params: object) -> Masil:
    return Masil.from_trained(trained, concepts=4, alpha=0.3, device="cpu", **params)


def test_names_that_sort_otherwise_than_they_count_get_their_own_vectors(trained):
    test = patterns(10, 2)
    by_number = learner(trained).fit(patterns(16, 1)).score(test)
    by_name = learner(trained).fit(patterns(16, 1), named(patterns(16, 1))).score(test, named(test))
    assert by_number > 0.8
    assert by_name == by_number


def test_a_base_session_keeps_the_names_of_its_classes(trained, folder, tmp_path):
    assert trained.names is None  # nobody gave any
    train(patterns(16, 1), RECIPE, folder, device="cpu", names=NAMES)  # a finished one gets them afterwards
    assert load_trained(folder).names == NAMES
    train(patterns(16, 1), RECIPE, folder, device="cpu")  # and keeps them
    compact(folder, tmp_path)
    assert load_trained(tmp_path).names == NAMES
    with pytest.raises(StorageError, match=r"class 0 is called 'class 0', here 'class 11'\. Move it away"):
        train(patterns(16, 1), RECIPE, folder, device="cpu", names=NAMES[::-1])


def test_names_must_be_as_many_as_the_classes_and_differ(tmp_path):
    with pytest.raises(InputError, match=r"11 names were given for 12 classes; label i is the class `names\[i\]`"):
        train(patterns(4, 1), RECIPE, tmp_path, device="cpu", names=NAMES[1:])
    with pytest.raises(InputError, match="Two classes are called 'class 1'"):
        train(patterns(4, 1), RECIPE, tmp_path, device="cpu", names=("class 1", *NAMES[1:]))


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1], SHUFFLED], ids=["natural", "reversed", "shuffled"])
def test_vectors_are_matched_by_name(trained, names):
    test = patterns(10, 2)
    model = learner(replace(trained, names=names)).fit(patterns(16, 1), named(patterns(16, 1), names))
    assert model.classes_.tolist() == sorted(names)
    for label, vector in zip(model.memory_.labels, model.memory_.vectors, strict=True):
        torch.testing.assert_close(vector, unit(trained.class_vectors[names.index(label), None])[0])
    assert model.score(test, named(test, names)) > 0.8


def test_numbers_are_those_of_training_whatever_the_names(trained):
    model = learner(replace(trained, names=SHUFFLED)).fit(patterns(16, 1))
    torch.testing.assert_close(model.memory_.vectors, unit(trained.class_vectors))


def test_names_in_another_order_than_in_training_are_a_fact_that_images_do_not_overrule(trained):
    model = learner(replace(trained, names=SHUFFLED)).fit(patterns(16, 1), named(patterns(16, 1)))
    first = model.memory_.labels.index("class 0")
    torch.testing.assert_close(model.memory_.vectors[first], unit(trained.class_vectors)[SHUFFLED.index("class 0")])


def test_other_classes_than_those_of_training_are_named(trained):
    known, images = replace(trained, names=NAMES), patterns(16, 1)
    fewer = images.subset(images.labels < 11)
    with pytest.raises(
        InputError,
        match=r"was trained on 12 classes, 'class 0', 'class 1', 'class 2' and 9 more; 'class 11' is missing\. Name",
    ):
        learner(known).fit(fewer, named(fewer))
    other = ("class 1", "class 0", "wren", *NAMES[3:])
    with pytest.raises(InputError, match="; 'class 2' is missing and 'wren' is not among them"):
        learner(known).fit(images, named(images, other))
    model = learner(known, class_vectors=None).fit(images, named(images, other))
    assert not model.base_.framed


def test_a_base_session_without_names_is_matched_only_where_its_images_leave_no_doubt(trained):
    images = patterns(16, 1)
    model = learner(trained).fit(images, named(images, SHUFFLED))
    for number, label in enumerate(SHUFFLED):
        row = model.memory_.labels.index(label)
        torch.testing.assert_close(model.memory_.vectors[row], unit(trained.class_vectors)[number])
    pixels = np.random.default_rng(0).integers(0, 255, images.source.pixels.shape, dtype=np.uint8)
    noise = array_images(pixels, images.labels)
    with pytest.raises(InputError, match=r"kept no names of its classes, and these images do not show beyond doubt"):
        learner(trained).fit(noise, named(images))
    learner(trained, class_names=NAMES).fit(noise, named(images))


def test_vectors_given_by_hand_need_names_where_text_sorts_otherwise_than_people_do(trained):
    params = {"embedding": trained.projection, "class_vectors": trained.class_vectors, "power": 1.0, "device": "cpu"}
    images = patterns(16, 1)
    with pytest.raises(InputError, match="that of 'class 10' or of 'class 2'. Say which class each vector is of"):
        Masil(trained.backbone, **params).fit(images, named(images))
    with pytest.raises(InputError, match="There are 12 class vectors but 11 `class_names`"):
        Masil(trained.backbone, **params, class_names=NAMES[1:]).fit(images, named(images))
    with pytest.raises(InputError, match="`class_names` are those of `class_vectors`, but no vectors were given"):
        Masil(trained.backbone, class_names=NAMES, device="cpu").fit(images, named(images))


def test_a_model_file_and_its_graph_keep_which_class_is_which(trained, tmp_path):
    images, test = patterns(16, 1), patterns(10, 2)
    model = learner(replace(trained, names=SHUFFLED)).fit(images, named(images, SHUFFLED))
    model.save(tmp_path / "m.masil")
    again = Masil.load(tmp_path / "m.masil", device="cpu")
    assert again.class_names == SHUFFLED
    assert again.score(test, named(test, SHUFFLED)) == model.score(test, named(test, SHUFFLED))
    refitted = Masil(**again.get_params()).fit(images, named(images, SHUFFLED))
    assert torch.equal(refitted.memory_.vectors, model.memory_.vectors)
    graph = onnxruntime.InferenceSession(export_onnx(model), providers=["CPUExecutionProvider"])
    labels = json.loads(graph.get_modelmeta().custom_metadata_map["labels"])
    probabilities = graph.run(["probabilities"], {"pixels": test.source.pixels})[0]
    right = [labels[row] == label for row, label in zip(probabilities.argmax(1), named(test, SHUFFLED), strict=True)]
    assert np.mean(right) == model.score(test, named(test, SHUFFLED))


@pytest.mark.parametrize("kept", [True, False])
def test_tuning_plays_with_the_vectors_of_the_right_classes(trained, kept):
    images = patterns(16, 1)
    model = learner(replace(trained, names=SHUFFLED) if kept else trained)
    grid = {"alpha": (0.3,), "bias": (0.0,), "shots": 3, "plays": 1}
    by_name = tune(images, named(images, SHUFFLED), model, **grid).trials[0]
    assert by_name.base > 0.8
