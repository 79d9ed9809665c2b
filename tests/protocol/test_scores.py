import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.metrics import accuracy_score, confusion_matrix

from masil.errors import InputError
from masil.protocol import (
    Protocol,
    confusion_by_session,
    generalised_accuracy,
    harmonic_mean,
    mean_and_interval,
    score_session,
    summarise,
)

SHAPE = Protocol("small", "any", base_classes=4, sessions=3, way=2, shot=1)
SESSION_OF = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]


@st.composite
def answers(draw):
    """A session, true labels that cover every seen class, and predictions among the seen classes."""
    session = draw(st.integers(0, 3))
    seen = 4 + 2 * session
    more = draw(st.lists(st.integers(0, seen - 1), max_size=40))
    truth = [*range(seen), *more]
    return session, truth, draw(st.lists(st.integers(0, seen - 1), min_size=len(truth), max_size=len(truth)))


@given(answers())
def test_session_scores_agree_with_scikit_learn(answer):
    session, truth, predicted = answer
    score = score_session(SHAPE, session, torch.tensor(predicted), torch.tensor(truth))

    def over(wanted):
        pairs = [(t, p) for t, p in zip(truth, predicted, strict=True) if SESSION_OF[t] in wanted]
        return accuracy_score(*zip(*pairs, strict=True))

    assert score.accuracy == pytest.approx(accuracy_score(truth, predicted))
    assert score.base == pytest.approx(over({0}))
    assert score.by_session == pytest.approx([over({s}) for s in range(session + 1)])
    assert (score.correct, score.total) == (sum(t == p for t, p in zip(truth, predicted, strict=True)), len(truth))
    if session == 0:
        assert score.novel is None
        assert score.harmonic_mean is None
    else:
        assert score.novel == pytest.approx(over({1, 2, 3}))
        assert score.harmonic_mean == pytest.approx(
            stats.hmean([over({0}), over({1, 2, 3})]) if score.base and score.novel else 0
        )
    table = confusion_by_session(SHAPE, session, torch.tensor(predicted), torch.tensor(truth))
    blocks = confusion_matrix([SESSION_OF[t] for t in truth], [SESSION_OF[p] for p in predicted], labels=range(4))
    assert table.tolist() == blocks[: session + 1, : session + 1].tolist()


def test_a_whole_protocol_is_summed_up():
    truth = torch.arange(10)
    perfect = [score_session(SHAPE, t, truth[: 4 + 2 * t], truth[: 4 + 2 * t]) for t in range(3)]
    last = score_session(SHAPE, 3, torch.where(truth < 5, truth, 0), truth)
    scores = summarise(SHAPE, [*perfect, last])
    assert scores.average == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    assert scores.performance_drop == pytest.approx(0.5)
    assert last.base == 1
    assert last.novel == pytest.approx(1 / 6)
    assert last.by_session == pytest.approx((1, 0.5, 0, 0))


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1, max_size=5),
    st.sampled_from([2.0, 6.4, 10.0, 12.0]),
)
def test_generalised_accuracy_agrees_with_a_plain_reading_of_its_definition(rows, most):
    by_session = [row[: t + 1] for t, row in enumerate(rows)]
    grid = np.array([*np.arange(0, math.floor(most) + 1), *([most] if most % 1 else [])])
    curve = np.zeros_like(grid, dtype=float)
    for t, shares in enumerate(by_session):
        for i, a in enumerate(grid):
            curve[i] += (shares[0] if t == 0 else (a * shares[0] + sum(shares[1:])) / (a + t)) / len(by_session)
    assert generalised_accuracy(by_session, most) == pytest.approx(integrate.trapezoid(curve, grid) / most)


def test_generalised_accuracy_of_a_learner_that_ignores_novel_classes_lies_far_below_its_accuracy():
    ignorant = [[0.8] + [0.0] * t for t in range(9)]
    fair = [[0.8] * (t + 1) for t in range(9)]
    assert generalised_accuracy(fair, 12) == pytest.approx(0.8)
    assert generalised_accuracy(ignorant, 12) < 0.6


@pytest.mark.parametrize(
    ("base", "novel", "mean"), [(0.5, 0.5, 0.5), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.6, 0.3, 0.4)]
)
def test_harmonic_mean(base, novel, mean):
    assert harmonic_mean(base, novel) == pytest.approx(mean)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_spread_agrees_with_scipy(values):
    found = mean_and_interval(values)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.std == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    if found.std > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
        assert (found.low, found.high) == pytest.approx((low, high))


def test_one_value_has_no_spread():
    found = mean_and_interval([0.4])
    assert (found.n, found.mean) == (1, 0.4)
    assert math.isnan(found.std)
    with pytest.raises(InputError, match="no values to summarise"):
        mean_and_interval([])


@pytest.mark.parametrize(
    ("session", "predicted", "truth", "sentence"),
    [
        (1, [6], [1], "Session 1 predicts class 6, but only classes 0 … 5 have been taught"),
        (0, [-1], [1], "Session 0 predicts class -1"),
        (0, [1], [4], "Session 0 is tested on class 4"),
        (0, [1, 2], [1, 2, 3], r"\(2,\) predictions for \(3,\) test images"),
        (0, [], [], "Session 0 has no test images"),
        (2, [0, 6], [0, 6], "test set of session 2 has no image of what session 1 taught"),
    ],
)
def test_answers_that_cannot_be_a_sessions_are_refused(session, predicted, truth, sentence):
    with pytest.raises(InputError, match=sentence):
        score_session(SHAPE, session, torch.tensor(predicted), torch.tensor(truth))


def test_scores_of_other_sessions_are_refused():
    only = score_session(SHAPE, 1, torch.arange(6), torch.arange(6))
    with pytest.raises(InputError, match=r"Scores of sessions \[1\] were given; they must be 0, 1, 2, …"):
        summarise(SHAPE, [only])
