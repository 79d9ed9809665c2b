"""Results that are only shown elsewhere agree with what the learner predicts and keeps."""

import numpy as np
import pytest
import torch
from PIL import Image

from masil.errors import DataError
from masil.learner import Answers, Masil


def test_a_session_says_how_well_its_classes_are_told_apart(model, world):
    shots, labels = world.draw(range(9, 12), 5, seed=1)
    taught = model.teach(shots, labels, update=True, note="walk")
    assert taught.session == model.sessions_[-1]
    assert [(c.label, c.images, c.updated) for c in taught.classes] == [
        ("c09", 5, True), ("c10", 5, False), ("c11", 5, False)
    ]  # fmt: skip
    predicted = model.predict(shots).tolist()
    cosines = model.memory_.vectors @ model.memory_.vectors.T
    for c in taught.classes:
        assert c.recognised == sum(a == b == c.label for a, b in zip(predicted, labels, strict=True))
        row = cosines[model.memory_.labels.index(c.label)].sort(descending=True)
        assert [n.cosine for n in c.nearest] == pytest.approx(row.values[1:4].tolist(), abs=1e-5)
        assert [n.label for n in c.nearest] == [model.memory_.labels[i] for i in row.indices[1:4]]


def test_the_card_says_what_is_kept(model, world):
    model.learn(*world.draw(range(10, 12), 3, seed=1)).learn(*world.draw(range(11, 12), 2, seed=2), update=True)
    card = model.describe()
    assert (card.backbone, card.image_side, card.features, card.concepts) == (None, None, 24, 8)
    assert [(c.label, c.images, c.base, c.session) for c in card.classes[-3:]] == [
        ("c09", 12, True, 0), ("c10", 3, False, 1), ("c11", 5, False, 1)
    ]  # fmt: skip
    cosines = (model.memory_.vectors @ model.memory_.vectors.T).fill_diagonal_(-2)
    assert [c.nearest.cosine for c in card.classes] == pytest.approx(cosines.amax(1).tolist(), abs=1e-5)
    assert card.memory_bytes == 12 * card.bytes_per_class
    assert (card.sessions, card.log) == (model.sessions_, model.log_)
    for label in model.memory_.labels[1:]:
        model.forget(label)
    assert model.describe().classes[0].nearest is None


def test_answers_are_ranked_and_those_that_are_called_unknown_say_so():
    shares = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.0, 1.0, 0.0]], dtype=torch.float64)
    answers = Answers(("a", "b", "c"), shares, torch.tensor([0.9, 0.1, 0.5]), 0.4, faults={2: DataError("x is cut.")})
    first, second, third = answers.ranked(2)
    assert [(r.label, r.probability) for r in first.top] == [("b", 0.5), ("c", 0.3)]
    assert (first.unknown, second.unknown) == (False, True)
    assert first.certainty == "confidence 50.0 %, known 90.0 %"
    assert second.certainty == "confidence 80.0 %, known 10.0 %, so perhaps unknown"
    assert (third.top, third.known, third.fault) == ((), None, "x is cut.")


def test_a_bad_file_is_passed_over(tmp_path, backbone, pictures):
    pixels, labels = pictures(range(3), 2)
    model = Masil(backbone, concepts=2, alpha=0.3, device="cpu").fit(pixels, labels)
    files = [tmp_path / f"{name}.png" for name in "xyz"]
    for file, one in zip(files, pixels, strict=False):
        Image.fromarray(one).save(file)
    files[1].write_text("no photo")
    answers = model.answer(files, skip_bad=True)
    assert list(answers.faults) == [1]
    good = model.predict_proba([files[0], files[2]])
    np.testing.assert_allclose(answers.probabilities[[0, 2]].numpy(), good, atol=1e-5)
    with pytest.raises(DataError, match=r"y\.png"):
        model.answer(files)
