"""Balance takes off each class's score what the class gives its own images, whatever the method."""

import pickle
from dataclasses import dataclass, replace
from typing import final

import joblib
import pytest
import torch
from torch import Tensor

from masil.errors import InputError, UnknownNameError
from masil.learner import judge, offsets
from masil.methods import (
    Checked,
    DCosine,
    ICaRL,
    Method,
    Queries,
    Samples,
    Task,
    Teen,
    balanced,
    find_method,
    trains_its_own_base,
)
from masil.methods.balanced import expected_of_shots
from masil.protocol import PROTOCOLS, Protocol
from masil.training import RECIPES

BASE, NEW, D = 8, 4, 12
PROTOCOL = Protocol("rows", "rows", base_classes=BASE, sessions=1, way=NEW, shot=5)
pytestmark = pytest.mark.usefixtures("one_thread")


def cloud(classes: range, each: int, seed: int, noise: float = 0.5) -> Samples:
    centres = 2 * torch.rand(BASE + NEW, D, generator=torch.Generator().manual_seed(0)).square()
    labels = torch.tensor(classes).repeat(each)
    drawn = noise * torch.randn(len(labels), D, generator=torch.Generator().manual_seed(seed))
    return Samples((centres[labels] + drawn).relu(), labels=labels)


def taught(method: Method, task: Task | None = None) -> Method:
    checked = Checked(method)
    checked.fit(cloud(range(BASE), 30, 1), Task(PROTOCOL) if task is None else task)
    checked.learn(cloud(range(BASE, BASE + NEW), 5, 2))
    return method


def test_without_strength_it_is_the_method_and_with_it_scores_differ_by_the_offsets() -> None:
    asked = cloud(range(BASE + NEW), 20, 3)
    plain, none, half = (
        taught(method) for method in (DCosine(), balanced(DCosine)(strength=0.0), balanced(DCosine)(strength=0.5))
    )
    torch.testing.assert_close(none.scores(asked), plain.scores(asked))
    expected = plain.scores(asked) - 0.5 * offsets(half.expected, torch.arange(BASE + NEW) < BASE)
    torch.testing.assert_close(half.scores(asked), expected)
    assert torch.equal(none.geometry(asked)[1], plain.geometry(asked)[1])


def test_new_classes_gain_by_it_and_base_classes_expect_more_of_their_images() -> None:
    method = taught(balanced(DCosine)(strength=1.0))
    assert float(method.expected[:BASE].mean()) > float(method.expected[BASE:].mean())
    novel = cloud(range(BASE, BASE + NEW), 50, 4)
    plain = taught(DCosine())
    assert float((method.predict(novel) >= BASE).double().mean()) > float(
        (plain.predict(novel) >= BASE).double().mean()
    )


def test_what_shots_expect_is_their_mean_score_when_each_is_left_out() -> None:
    base, shots = cloud(range(BASE), 30, 1), cloud(range(BASE, BASE + NEW), 5, 2)
    method = DCosine()
    method.fit(base, Task(PROTOCOL))
    found = expected_of_shots(method, shots, BASE, 0.0)
    for label in range(NEW):
        rows = shots.activations[shots.labels == BASE + label]
        cosines = [
            torch.cosine_similarity(rows[i], torch.cat([rows[:i], rows[i + 1 :]]).mean(0), dim=0)
            for i in range(len(rows))
        ]
        torch.testing.assert_close(found[label], torch.stack(cosines).mean())
    one = Samples(shots.activations[:NEW], labels=shots.labels[:NEW])
    assert expected_of_shots(method, one, BASE, 0.7).tolist() == pytest.approx([0.7] * NEW)


def test_the_strength_is_chosen_by_what_is_aimed_at_and_noted() -> None:
    found = {}
    for aim in ("accuracy", "harmonic"):
        method = taught(balanced(Teen)(aim=aim, a=0.3))
        assert method.method.a == 0.3
        found[aim] = method.remarks()["strength of balance"]
        assert method.parameters(Task(PROTOCOL)) == {"a": 0.3, "temperature": 16.0, "aim": aim, "strength": None}
    assert found["harmonic"] >= found["accuracy"]
    with pytest.raises(UnknownNameError, match="did you mean 'harmonic'"):
        balanced(Teen)(aim="hramonic")


def test_what_is_aimed_at_is_measured_by_hand() -> None:
    scores, labels = torch.eye(4)[[0, 1, 1, 3]], torch.tensor([0, 1, 2, 3])
    assert judge(scores, labels, 2).tolist() == pytest.approx([0.75, 1, 0.5, 2 * 1 * 0.5 / 1.5])


def test_offsets_are_half_of_the_mean_of_a_kind_and_a_quarter_of_the_difference_to_it() -> None:
    base = torch.tensor([True, True, False, False])
    assert offsets(torch.tensor([1.0, 3.0, 0.0, 4.0]), base).tolist() == [0.875, 1.125, 0.75, 1.25]
    assert offsets(torch.tensor([1.0, 3.0]), base[:2]).tolist() == [0.875, 1.125]


def test_it_is_found_by_name_and_can_be_handed_to_another_process() -> None:
    name, method = find_method("d-cosine+balance")
    assert (name, method.name, method.title) == ("d-cosine+balance",) * 2 + ("D-Cosine + balance",)
    packed = pickle.dumps(joblib.wrap_non_picklable_objects(method(strength=0.5), keep_wrapper=False))
    again = pickle.loads(packed)
    asked = cloud(range(BASE + NEW), 5, 3)
    assert torch.equal(taught(again).predict(asked), taught(method(strength=0.5)).predict(asked))


def test_it_trains_a_base_session_of_its_own_where_the_method_does() -> None:
    assert not trains_its_own_base(balanced(DCosine))
    assert trains_its_own_base(balanced(ICaRL))
    usual, protocol = RECIPES["cub200-gentle"], PROTOCOLS["cub200"]
    assert balanced(ICaRL)().base_session(usual, protocol) == ICaRL().base_session(usual, protocol)


@final
@dataclass(kw_only=True)
class Mute(Method):
    """Answers, but gives no scores."""

    name, title, citation = "mute", "Mute", "Nobody, 2026"

    def fit(self, base: Samples, task: Task) -> None: ...
    def learn(self, shots: Samples) -> None: ...
    def predict(self, queries: Queries) -> Tensor:
        return torch.zeros(len(queries), dtype=torch.int64)


def test_a_method_without_scores_is_refused() -> None:
    with pytest.raises(InputError, match="'mute' gives no scores that could be balanced, only answers"):
        balanced(Mute)().fit(cloud(range(BASE), 5, 1), Task(replace(PROTOCOL)))
