"""The balance is chosen on base classes that play novel, for what is aimed at, and kept."""

from dataclasses import replace

import pytest
import torch

from masil.collapse import LinearMap
from masil.errors import InputError, UnknownNameError
from masil.learner import AIMS, STRENGTHS, Masil, Rehearsed, judge, operating_points, tune
from masil.protocol import Protocol, harmonic_mean, rehearse

SEEN = 12


@pytest.fixture(scope="module")
def data(world):
    return world.draw(range(SEEN), 12)


@pytest.fixture(scope="module")
def aimed(data):
    return {aim: Masil(backbone=None, concepts=6, aim=aim).fit(*data, confidence=False) for aim in AIMS}


def by_hand(data, shots, share):
    """Accuracy and harmonic mean [2, strengths], averaged over the rehearsals, of learners with a given balance."""
    images, labels = data
    codes = torch.tensor([int(label[1:]) for label in labels])
    found = []
    for play in rehearse(codes, shots, share, 0):
        model = Masil(backbone=None, concepts=6).fit(images[play.fit], [labels[i] for i in play.fit], confidence=False)
        model.learn(images[play.shots], [labels[i] for i in play.shots])
        old, rows = torch.isin(codes[play.test], torch.tensor(play.base)), []
        for strength in STRENGTHS:
            answers = model.set_params(balance=strength).predict(images[play.test]).tolist()
            right = torch.tensor([a == labels[i] for a, i in zip(answers, play.test.tolist(), strict=True)]).double()
            mean = harmonic_mean(float(right[old].mean()), float(right[~old].mean()))
            rows.append((float(right.mean()), mean))
        found.append(torch.tensor(rows, dtype=torch.float64).T)
    return torch.stack(found).mean(0)


def test_what_is_chosen_does_best_where_base_classes_play_novel(data, aimed):
    figures = by_hand(data, 5, 0.4)
    one_image = 1 / 10  # of the least that a kind of classes is judged by: rounding may decide for either
    assert len({round(float(value), 6) for value in figures.flatten()}) > 2  # there is something to choose
    for aim, row in zip(AIMS, figures, strict=True):
        assert aimed[aim].balance_ in STRENGTHS
        assert float(row[STRENGTHS.index(aimed[aim].balance_)]) >= float(row.max()) - one_image / 2
    points = aimed["harmonic"].base_.points
    assert points == aimed["accuracy"].base_.points == {aim: model.balance_ for aim, model in aimed.items()}


def test_no_strength_does_better_by_the_measure_that_was_aimed_at():
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(10).repeat(30)
    plays = []
    for _ in range(3):
        offsets = torch.cat([torch.full((6,), 0.8), torch.full((4,), 0.2)])
        scores = torch.eye(10)[labels] + offsets + 0.6 * torch.randn(300, 10, generator=draw)
        plays.append(Rehearsed(scores, offsets, labels, 6))
    found = operating_points(iter(plays))
    for column, aim in ((0, "accuracy"), (3, "harmonic")):
        chosen = found[aim]
        values = [
            sum(float(judge(p.scores - s * p.offsets, p.labels, p.base)[column]) for p in plays) for s in STRENGTHS
        ]
        assert values[STRENGTHS.index(chosen)] == pytest.approx(max(values), abs=1e-6)
        assert max(values) > min(values)
    assert operating_points(()) == dict.fromkeys(AIMS, 1.0)


def test_but_for_the_balance_it_is_the_same_learner_and_the_default_is_the_midpoint(world, data, aimed):
    asked, shots = world.draw(range(15), 4, seed=3)[0], world.draw(range(SEEN, 15), 3, seed=1)
    for aim, model in aimed.items():
        given = Masil(backbone=None, concepts=6, balance=model.balance_).fit(*data, confidence=False)
        taught = Masil(backbone=None, concepts=6, aim=aim).fit(*data, confidence=False)
        assert (taught.learn(*shots).predict_proba(asked) == given.learn(*shots).predict_proba(asked)).all()
    plain, one = (Masil(backbone=None, concepts=6, balance=b).fit(*data, confidence=False) for b in (None, 1.0))
    assert torch.equal(plain.offsets_, one.offsets_)
    assert (plain.balance_, plain.base_.points, plain.describe().aim) == (1.0, None, None)


@pytest.mark.parametrize(("base", "way", "aim"), [(1, 3, "accuracy"), (4, 1, "harmonic")])
def test_the_protocol_to_come_says_how_many_play_novel(world, base, way, aim):
    """With three of four classes new any balance is too much, by 18 of 240 images; with one of five it is not."""
    data = replace(world, centres=0.7 * world.centres).draw(range(SEEN), 50)
    like = Protocol("rows", "rows", base_classes=base, sessions=1, way=way, shot=1)
    model = Masil(backbone=None, concepts=6, aim=aim).fit(*data, confidence=False, like=like)
    row = by_hand(data, 1, way / (base + way))[list(AIMS).index(aim)]
    best, worst = float(row.max()), float(row.min())
    assert float(row[STRENGTHS.index(model.balance_)]) > best - (best - worst) / 3


def test_a_saved_model_keeps_it_and_can_change_its_aim(aimed, tmp_path):
    model = aimed["accuracy"]
    model.save(tmp_path / "m.masil")
    again = Masil.load(tmp_path / "m.masil", device="cpu")
    assert (again.aim, again.balance_, again.base_.points) == ("accuracy", model.balance_, model.base_.points)
    assert torch.equal(again.offsets_, model.offsets_)
    assert (again.describe().aim, again.describe().balance) == ("accuracy", model.balance_)
    assert again.set_params(aim="harmonic").balance_ == aimed["harmonic"].balance_


def test_given_class_vectors_go_with_their_classes(data):
    codes = torch.tensor([int(label[1:]) for label in data[1]])
    vectors = torch.stack([data[0][codes == c].mean(0) for c in range(SEEN)])
    model = Masil(
        backbone=None, concepts=6, embedding=LinearMap(24), class_vectors=vectors, power=1.0, aim="harmonic"
    ).fit(data[0], codes.tolist())
    assert model.balance_ in STRENGTHS


def test_refusals(world, data):
    with pytest.raises(InputError, match="`aim` is 'accuracy' and `balance` is 0.5, but an aim chooses the balance"):
        Masil(backbone=None, aim="accuracy", balance=0.5).fit(*data)
    with pytest.raises(UnknownNameError, match="no aim called 'acuracy'; did you mean 'accuracy'"):
        Masil(backbone=None, aim="acuracy").fit(*data)
    with pytest.raises(InputError, match="takes 3 classes of 3 images, but there are 2, and the smallest has 8"):
        Masil(backbone=None, aim="harmonic").fit(*world.draw(range(2), 8))
    with pytest.raises(InputError, match="but there are 6, and the smallest has 2. Add images, or give `balance`"):
        Masil(backbone=None, aim="harmonic").fit(*world.draw(range(6), 2))
    with pytest.raises(InputError, match="`aim` is 'harmonic', but here `measure` says what decides"):
        tune(*data, Masil(backbone=None, aim="harmonic"))
    model = Masil(backbone=None, concepts=6).fit(*data, confidence=False).set_params(aim="accuracy")
    with pytest.raises(InputError, match="there was none when the base session was learnt, so that no balance was"):
        model.predict(data[0])


def test_three_images_of_three_classes_are_enough(world):
    model = Masil(backbone=None, concepts=3, aim="accuracy").fit(*world.draw(range(3), 3))
    assert model.balance_ in STRENGTHS
