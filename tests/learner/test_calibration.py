"""Classes of many images and of a few compete on one scale."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from masil import Masil
from masil.learner.calibration import (
    DEFAULT_TEMPERATURE,
    OWN_WEIGHT,
    SessionEmbeddings,
    mean_pair_cosine,
    offsets,
    own_scores_of_held_out,
    own_scores_of_shots,
    temperature,
)


def cloud(n: int, d: int, seed: int, noise: float = 1.0) -> Tensor:
    """Unit vectors around one direction."""
    draw = torch.Generator().manual_seed(seed)
    return normalize(torch.eye(d)[0] * d**0.5 * 0.5 + noise * torch.randn(n, d, generator=draw))


def test_the_midpoint_errs_as_often_for_one_class_as_for_the_other() -> None:
    # Own scores of mean .6 and .3, scores of the other's images of mean .1, all with the same scatter.
    draw = torch.Generator().manual_seed(0)
    n = 40_000
    of_b = torch.tensor([0.6, 0.1]) + 0.2 * torch.randn(n, 2, generator=draw)
    of_c = torch.tensor([0.1, 0.3]) + 0.2 * torch.randn(n, 2, generator=draw)
    off = offsets(torch.tensor([0.6, 0.3]), torch.tensor([True, False]))
    wrong = [float(((of_b - off).argmax(1) != 0).float().mean()), float(((of_c - off).argmax(1) != 1).float().mean())]
    plain = [float((of_b.argmax(1) != 0).float().mean()), float((of_c.argmax(1) != 1).float().mean())]
    assert wrong[0] == pytest.approx(wrong[1], abs=0.01)
    assert sum(wrong) < sum(plain)


def test_a_class_is_drawn_to_its_kind() -> None:
    expected = torch.tensor([0.8, 0.6, 0.2, 0.4])
    base = torch.tensor([True, True, False, False])
    found = offsets(expected, base)
    apart = OWN_WEIGHT * 0.1
    drawn = [(0.7 + apart) / 2, (0.7 - apart) / 2, (0.3 - apart) / 2, (0.3 + apart) / 2]
    assert found.tolist() == pytest.approx(drawn)
    assert torch.equal(expected, torch.tensor([0.8, 0.6, 0.2, 0.4]))
    assert offsets(expected[:2], base[:2]).tolist() == pytest.approx(found[:2].tolist())


@given(st.integers(2, 6), st.floats(0, 1), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_what_shots_expect_is_what_new_images_of_the_class_get(n: int, a: float, seed: int) -> None:
    # Over many classes of n shots from one cloud, the mean of e is the mean score of fresh images.
    k, d = 400, 64
    h = cloud(n * k, d, seed)
    r = normalize(h + 0.5 * cloud(n * k, d, seed + 1000))
    codes = torch.arange(k).repeat_interleave(n)
    means, induced = (x.view(k, n, d).mean(1) for x in (h, r))
    weight = torch.full((k,), a)
    w = normalize(torch.lerp(means, induced, weight[:, None]))
    e = own_scores_of_shots(SessionEmbeddings(h, r, codes, torch.full((k,), n), means, induced), weight, w, 0.0)
    fresh = cloud(2000, d, seed + 2000).mean(0)
    truth = float((w @ fresh).mean())
    seen = float((means * w).sum(1).mean())
    assert float(e.mean()) == pytest.approx(truth, abs=0.03)
    assert seen - truth > 3 * abs(float(e.mean()) - truth) or seen - truth < 0.05


def test_one_shot_takes_the_word_of_other_classes() -> None:
    h = cloud(1, 6, 3)
    shot = SessionEmbeddings(h, h, torch.tensor([0]), torch.tensor([1]), h, h)
    e = own_scores_of_shots(shot, torch.zeros(1), h, 0.4)
    assert e.tolist() == pytest.approx([0.4])


def test_pairs_of_images_are_estimated_from_means() -> None:
    h = cloud(5 * 600, 8, 4)
    means = h.view(600, 5, 8).mean(1)
    far = cloud(20_000, 8, 5)
    truth = float((far[:10_000] * far[10_000:]).sum(1).mean())
    assert float(mean_pair_cosine(means, torch.full((600,), 5))) == pytest.approx(truth, abs=0.02)


def test_held_out_images_speak_for_their_class_and_for_those_without() -> None:
    cosines = torch.tensor([[0.5, 0.1, 0.0], [0.7, 0.0, 0.0], [0.0, 0.3, 0.0]])
    found = own_scores_of_held_out(cosines, torch.tensor([0, 0, 1]), 3)
    assert found.tolist() == pytest.approx([0.6, 0.3, 0.5])
    assert own_scores_of_held_out(torch.empty(0, 2), torch.empty(0, dtype=torch.int64), 2).tolist() == [0, 0]


def clusters(classes: range, each: int, seed: int) -> tuple[Tensor, list[int]]:
    draw = torch.Generator().manual_seed(seed)
    centres = torch.rand(40, 24, generator=torch.Generator().manual_seed(0))
    codes = torch.tensor(classes).repeat_interleave(each)
    return (centres[codes] + 0.45 * torch.randn(len(codes), 24, generator=draw)).relu(), codes.tolist()


def test_novel_classes_are_found_more_often_and_scores_are_cosines_less_offsets() -> None:
    gains = []  # of novel classes, and of all
    for draw in range(4):
        tested, truth = clusters(range(30), 40, 10 * draw + 9)
        novel = torch.tensor(truth) >= 20
        found = []
        for balance in (0, 1):
            model = Masil(backbone=None, balance=balance).fit(*clusters(range(20), 60, 10 * draw + 1))
            model.learn(*clusters(range(20, 30), 3, 10 * draw + 2))
            right = (torch.as_tensor(model.predict(tested)) == torch.tensor(truth)).float()
            found.append(torch.stack([right[novel].mean(), right.mean()]))
        gains.append(found[1] - found[0])
    # .05 for novel classes, .03 or more on every draw, at no cost to speak of: −.002.
    assert torch.stack(gains).mean(0)[0] > 0.02
    assert torch.stack(gains).mean(0)[1] > -0.02
    scores = model.base_.embed(tested) @ model.memory_.vectors.T - model.offsets_
    chosen = scores.gather(1, torch.as_tensor(model.predict(tested))[:, None])[:, 0]
    torch.testing.assert_close(chosen, scores.amax(1), atol=1e-5, rtol=0)
    assert float(model.offsets_[:20].mean()) > float(model.offsets_[20:].mean())


def test_more_images_of_a_class_average_what_is_expected_of_it() -> None:
    model = Masil(backbone=None).fit(*clusters(range(20), 30, 1)).learn(*clusters(range(20, 21), 5, 2))
    more, names = clusters(range(20, 21), 5, 3)
    before = model.memory_.own_scores[20]
    score = (model.base_.embed(more) @ model.memory_.vectors[20]).mean()
    model.learn(more, names, update=True)
    torch.testing.assert_close(model.memory_.own_scores[20], (before + score) / 2)
    model.undo()
    assert model.memory_.own_scores[20] == before


@pytest.mark.parametrize("scale", [4.0, 12.0, 40.0])
def test_a_known_temperature_is_found(scale):
    generator = torch.Generator().manual_seed(0)
    cosines = torch.rand(6000, 8, generator=generator)
    labels = torch.multinomial(torch.softmax(scale * cosines, 1), 1, generator=generator)[:, 0]
    assert temperature(cosines, labels) == pytest.approx(scale, rel=0.06)


def test_few_right_answers_give_less_certainty_than_many_and_none_the_default():
    few, many = (temperature(torch.eye(3).repeat(n, 1), torch.arange(3).repeat(n)) for n in (1, 100))
    assert few < many < 100
    assert temperature(torch.empty(0, 4), torch.empty(0, dtype=torch.int64)) == DEFAULT_TEMPERATURE
