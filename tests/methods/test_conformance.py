"""What holds for every method, whatever it is."""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from masil.methods import METHODS, Checked, Keeps, Queries, Samples, Task, make
from masil.protocol import Protocol

BASE, WAY, SESSIONS, D = 8, 3, 2, 32
TOTAL = BASE + WAY * SESSIONS
SHOTS = 5
SMALLER: dict[str, dict[str, Any]] = {
    "ranpac": {"features": 200, "samples": 50},
    "ranpac-plain": {"features": 200},
    "masil": {"concepts": 16},
}
LOOSE = ("regularizer",)  # ties to old weights are soft, so base classes give way: .89, and .84 to .90 on other draws
SEEN = [
    name for name, method in METHODS.items() if method.sees == "activations"
]  # others: test_network.py, test_masil_paper.py
pytestmark = [
    # One process plays a method for all of its tests.
    pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in SEEN]),
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::masil.concepts.NMFConvergenceWarning"),
]


PROTOCOL = Protocol("clouds", "clouds", base_classes=BASE, sessions=SESSIONS, way=WAY, shot=SHOTS)


def cloud(classes: range, each: int, seed: int) -> Samples:
    """Well separated classes, their rows in no order."""
    centres = 3 * torch.rand(TOTAL, D, generator=torch.Generator().manual_seed(0)).square()
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes.start, classes.stop).repeat(each)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    rows = (centres[labels] + 0.4 * torch.randn(len(labels), D, generator=generator)).relu()
    return Samples(rows, labels=labels)


BASE_ROWS = cloud(range(BASE), 37, seed=1)  # 296 rows, a number nothing else has
NOVEL_ROWS = [cloud(range(BASE + WAY * s, BASE + WAY * (s + 1)), SHOTS, seed=2 + s) for s in range(SESSIONS)]
ASKED = cloud(range(TOTAL), 30, seed=9)


def new(name: str) -> Checked:
    return Checked(make(name, **SMALLER.get(name, {})))


def told(name: str) -> Task:
    """Tell a method what a run would; one that is its base session has had that."""
    return Task(PROTOCOL, own=METHODS[name].needs_own_base)


def play(name: str) -> tuple[Checked, list[Tensor]]:
    """Teach all sessions; give the predictions for all rows after each."""
    method = new(name)
    method.fit(BASE_ROWS, told(name))
    predictions = [method.predict(ASKED)]
    for rows in NOVEL_ROWS:
        method.learn(rows)
        predictions.append(method.predict(ASKED))
    return method, predictions


played = cache(play)


def test_it_says_what_it_is(name: str) -> None:
    method = METHODS[name]
    assert method.citation.split(", ")[-1].split()[-1].isdigit()
    assert getattr(method, "__final__", False)
    assert method.name == name
    assert method.title
    assert method.sees in ("activations", "images")
    assert method.trains in ("nothing", "head", "network")
    assert set(make(name).parameters(Task(PROTOCOL))) >= method.accepts()


def test_the_largest_score_wins(name: str) -> None:
    """Every method gives scores, so every one can be balanced."""
    method, predictions = played(name)
    scores = method.method.scores(ASKED)
    assert scores is not None
    assert scores.shape == (len(ASKED), TOTAL)
    assert torch.equal(scores.argmax(1).cpu(), predictions[-1])


def test_only_taught_classes_are_predicted(name: str) -> None:
    for session, predicted in enumerate(played(name)[1]):
        assert predicted.dtype == torch.int64
        assert predicted.shape == ASKED.labels.shape
        assert int(predicted.min()) >= 0
        assert int(predicted.max()) < BASE + WAY * session


def test_separated_classes_are_learnt(name: str) -> None:
    for session, predicted in enumerate(played(name)[1]):
        right = (predicted == ASKED.labels).float()
        # All others have .99 of the base classes and .97 of the novel ones.
        assert float(right[ASKED.labels < BASE].mean()) > (0.8 if name in LOOSE else 0.9)
        if session:
            novel = (ASKED.labels >= BASE) & (ASKED.labels < BASE + WAY * session)
            assert float(right[novel].mean()) > 0.9


def test_the_same_seed_gives_the_same_and_inputs_are_left_alone(name: str) -> None:
    before = [rows.clone() for part in (BASE_ROWS, *NOVEL_ROWS, ASKED) for rows in (part.activations, part.labels)]
    state = torch.get_rng_state()
    again = play(name)[1]
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(first, second) for first, second in zip(played(name)[1], again, strict=True))
    after = [rows for part in (BASE_ROWS, *NOVEL_ROWS, ASKED) for rows in (part.activations, part.labels)]
    assert all(torch.equal(first, second) for first, second in zip(before, after, strict=True))


def test_fit_forgets_what_was_before(name: str) -> None:
    method = copy.deepcopy(played(name)[0])
    method.fit(BASE_ROWS, told(name))
    assert torch.equal(method.predict(ASKED), played(name)[1][0])


def test_nothing_asked_is_nothing_answered(name: str) -> None:
    answer = played(name)[0].predict(Queries(torch.empty(0, D)))
    assert answer.shape == (0,)
    assert answer.dtype == torch.int64


def test_images_are_kept_only_by_those_who_say_so(name: str) -> None:
    method = played(name)[0]
    rows = torch.cat([part.activations for part in (BASE_ROWS, *NOVEL_ROWS)])
    kept = False
    for tensor in tensors(method, set()):
        if tensor.ndim == 2 and tensor.shape[1] == D:
            kept |= bool((torch.cdist(tensor.float(), rows, compute_mode="donot_use_mm_for_euclid_dist") < 1e-6).any())
        assert not {len(BASE_ROWS), len(NOVEL_ROWS[0])} & set(tensor.shape), tensor.shape
    assert not kept or Keeps.EXEMPLARS in METHODS[name].keeps


def test_the_geometry_is_of_unit_vectors(name: str) -> None:
    geometry = played(name)[0].geometry(ASKED)
    if geometry is not None:
        z, vectors = geometry
        assert z.shape == (len(ASKED), vectors.shape[1])
        assert len(vectors) == TOTAL
        for rows in geometry:
            assert torch.allclose(rows.norm(dim=1), torch.ones(len(rows)), atol=1e-4)


def tensors(thing: object, seen: set[int]) -> Iterator[Tensor]:
    """Every tensor that can be reached from `thing`."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from tensors(value, seen)
    elif isinstance(thing, (list, tuple, set)):
        for value in thing:
            yield from tensors(value, seen)
    elif isinstance(thing, nn.Module):
        yield from thing.state_dict().values()
        yield from tensors(vars(thing), seen)
    elif hasattr(thing, "__dict__") and not isinstance(thing, type) and type(thing).__module__.startswith("masil"):
        yield from tensors(vars(thing), seen)
