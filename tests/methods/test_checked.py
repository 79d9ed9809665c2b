"""What every method may rely on, and what every caller is told."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from masil.errors import InputError, UnknownNameError
from masil.learner import TRAINED_BALANCE
from masil.methods import METHODS, Checked, DCosine, Keeps, Method, Queries, Samples, Teen, make, trains_its_own_base

BASE = Samples(torch.rand(6, 3), labels=torch.arange(3).repeat(2))


@dataclass(kw_only=True)
class Answers(Method):
    """Gives whatever it is told to."""

    name = "answers"
    title = "Answers"
    citation = "none"
    answer: object = None
    calls: list[str] = field(init=False, default_factory=list)

    def fit(self, base, task):
        self.calls.append("fit")

    def learn(self, shots):
        self.calls.append("learn")

    def predict(self, queries):
        return self.answer


@pytest.mark.parametrize(
    ("shape", "labels", "sentence"),
    [
        ((2, 3), [4, 1], "Class 1 has been taught before; 3 classes are known"),
        ((2, 3), [3, 5], "The next class is 4, but there is no image of it; classes come in order"),
        ((2, 3), [3], r"but they have the shapes \[2, 3\] and \[1\]"),
        ((0, 3), [], r"but they have the shapes \[0, 3\] and \[0\]"),
        ((2,), [3, 4], r"shape \[2\], but the base session had 3 features"),
        ((2, 5), [3, 4], r"shape \[2, 5\], but the base session had 3 features; were they computed with the same"),
    ],
)
def test_a_session_that_does_not_fit_is_refused_and_changes_nothing(shape, labels, sentence, task) -> None:
    method = Checked(Answers())
    method.fit(BASE, task(3))
    with pytest.raises(InputError, match=sentence):
        method.learn(Samples(torch.zeros(shape), labels=torch.tensor(labels, dtype=torch.int64)))
    assert method.method.calls == ["fit"]
    assert method.known == 3
    with pytest.raises(InputError, match=r"The next class is 0, but there is no image of it; classes come in order\."):
        method.fit(Samples(torch.zeros(2, 3), labels=torch.tensor([1, 2])), task(3))


@pytest.mark.parametrize("ask", [Checked.predict, Checked.geometry, Checked.learn])
def test_nothing_works_before_fit_or_with_activations_of_another_backbone(ask, task) -> None:
    method, rows = Checked(Answers()), Samples(torch.rand(4, 4), labels=torch.arange(3, 7))
    with pytest.raises(InputError, match="Nothing has been taught yet; call `fit`"):
        ask(method, rows)
    method.fit(BASE, task(3))
    with pytest.raises(InputError, match=r"shape \[4, 4\], but the base session had 3 features.*the same backbone"):
        ask(method, rows)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs_total])
def test_a_frame_for_too_few_classes_is_refused(name: str, task) -> None:
    with pytest.raises(InputError, match="There is room for 2 classes in all, but there are 3 now"):
        Checked(make(name)).fit(BASE, task(1, 1))


@pytest.mark.parametrize("answer", [np.array([0, 2]), [0, 2], torch.tensor([0, 2], dtype=torch.int32)])
def test_whole_numbers_are_taken_however_they_come(answer, task) -> None:
    method = Checked(Answers(answer=answer))
    method.fit(BASE, task(3))
    found = method.predict(Queries(torch.rand(2, 3)))
    assert found.dtype == torch.int64
    assert found.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (torch.tensor([0.0, 2.0]), r"torch.float32 of shape \[2\]"),
        (torch.tensor([0]), r"torch.int64 of shape \[1\]"),
        (np.zeros((2, 3)), r"torch.float64 of shape \[2, 3\]"),
        (None, "NoneType"),
        ("cat", "str"),
        (["cat", "owl"], "list of str"),
        (np.array(["cat", "owl"]), "ndarray of str_"),
        ([[0], [1, 2]], "list of list"),
    ],
)
def test_answers_that_are_no_classes_are_refused(answer, said, task) -> None:
    method = Checked(Answers(answer=answer))
    method.fit(BASE, task(3))
    with pytest.raises(InputError, match=f"`predict` of 'answers' gave {said}; it must give a whole number for each"):
        method.predict(Queries(torch.rand(2, 3)))


def test_a_method_is_made_with_its_parameters_which_are_all_recorded(task) -> None:
    method = make("teen", a=0.3)
    assert isinstance(method, Teen)
    assert method.parameters(task()) == {"a": 0.3, "temperature": 16.0}
    assert make("masil").parameters(task(adapted=True))["balance"] == TRAINED_BALANCE["accuracy"]
    given = make("masil", concepts=5).parameters(task())
    assert given | {"concepts": 5, "balance": 1.0} == given
    assert Keeps.EXEMPLARS not in DCosine.keeps
    assert not trains_its_own_base(DCosine)
    assert trains_its_own_base(type(make("alice")))


def test_wrong_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="There is no method called 'ranpack'; did you mean 'ranpac'"):
        make("ranpack")
    with pytest.raises(InputError, match="Method 'teen' has no parameter 'temprature'; did you mean 'temperature'"):
        make("teen", temprature=2.0)


COUNTS = [(name, count) for name, method in METHODS.items() for count in method.counts]


@pytest.mark.parametrize(("name", "count"), COUNTS)
def test_a_number_that_must_be_one_at_least_is_refused_when_a_method_is_made(name: str, count: str) -> None:
    with pytest.raises(InputError, match=f"'{count}' of '{name}' is 0, but must be at least 1"):
        make(name, **{count: 0})
    assert make(name, **{count: 1}) is not None


def test_a_transport_that_overflows_is_refused_before_any_image_is_seen() -> None:
    with pytest.raises(InputError, match=r"smoothed by 0\.001; below 0\.03 single precision overflows"):
        make("d-deepemd", epsilon=0.001)
