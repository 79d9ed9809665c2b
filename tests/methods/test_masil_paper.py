"""MASIL as the paper writes it: every part is what its name says, or a test here fails."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.nn import functional

from masil.backbones import create, extract
from masil.collapse import simplex_etf
from masil.concepts import nmf
from masil.data import array_images, random_crops
from masil.errors import InputError, MasilError
from masil.methods import METHODS, CfAsWritten, Checked, MasilAsWritten, NcFscil, Queries, Samples, Task, make
from masil.methods.masil_paper import SGDR, TuningData, final_loss, fine_tune_simplex
from masil.protocol import PROTOCOLS, Protocol
from masil.training import RECIPES, Recipe, Trained, make_loss

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::masil.concepts.NMFConvergenceWarning"),
]
SHAPE = Protocol("patterns", "patterns", base_classes=4, sessions=2, way=2, shot=3)
PATTERNS = np.random.default_rng(0).integers(0, 200, (8, 3, 4, 4)).repeat(4, 2).repeat(4, 3)
BACKBONE = create("resnet20", width=0.5, framing=(16, 16), seed=0)
SMALL = {"concepts": 6, "crops": 10, "side": 9}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path))
    monkeypatch.setenv("MASIL_ENGINE", "torch")


def samples(classes: range, each: int, seed: int) -> Samples:
    labels = torch.arange(classes.start, classes.stop).repeat_interleave(each)
    noise = np.random.default_rng(seed).integers(-30, 31, (len(labels), 3, 16, 16))
    images = array_images((PATTERNS[labels] + noise).clip(0, 255).astype(np.uint8), labels)
    return Samples(extract(BACKBONE, images, engine="torch", device="cpu"), images, labels=labels)


def task(name: str = "nc-fscil", **told: object) -> Task:
    """A task whose base session has the objective of a method, as far as a method can tell."""
    recipe = make(name).base_session(RECIPES["cub200-gentle"], SHAPE)
    assert recipe is not None
    loss = make_loss(recipe.loss).build(BACKBONE.features, SHAPE.base_classes, torch.Generator().manual_seed(0))
    trained = Trained(BACKBONE, loss.class_vectors(4), loss.projection, (), recipe, frame=loss.frame)
    facts = {"device": "cpu", "adapted": True, "own": name == "nc-fscil", "trained": trained, "backbone": BACKBONE}
    return Task(SHAPE, **{**facts, **told})  # type: ignore[arg-type]


BASE = samples(range(4), 6, 1)
SESSIONS = [samples(range(4, 6), 3, 2), samples(range(6, 8), 3, 3)]
ASKED = samples(range(8), 4, 4)


def taught(kind: type[CfAsWritten | MasilAsWritten], sessions: int = 2, **settings: object):
    method = kind(**SMALL, **settings)  # type: ignore[arg-type]
    checked = Checked(method)
    checked.fit(BASE, task())
    for shots in SESSIONS[:sessions]:
        checked.learn(shots)
    return method, checked


def test_the_base_session_is_dot_regression_onto_a_simplex_of_all_classes_shared_with_nc_fscil() -> None:
    protocol, usual = PROTOCOLS["cifar100"], RECIPES["cifar100-paper"]
    recipe = NcFscil().base_session(usual, protocol)
    loss = {"name": "frame", "frame_shape": "simplex", "term": "dot-regression", "reserve": 100}
    assert recipe.loss | loss == recipe.loss
    for kind in (CfAsWritten, MasilAsWritten):
        assert kind().base_session(usual, protocol) == recipe
    assert Recipe.from_json(recipe.to_json()) == recipe


@pytest.mark.parametrize("kind", [CfAsWritten, MasilAsWritten])
@pytest.mark.parametrize(
    ("offered", "said"),
    [
        (lambda: task("nc-ce"), r"was trained by 'cub200-gentle\+nc-ce', cross-entropy onto simplex"),
        (lambda: task("learnable-ce"), r"was trained by 'cub200-gentle\+learnable-ce', cross-entropy onto learnt vec"),
        (lambda: task("alice"), r"was trained by 'cub200-gentle\+alice', alice\."),
        (lambda: task(own=False, trained=None), "has no base session of its own"),
    ],
)
def test_a_base_session_of_another_objective_is_refused(kind: type[CfAsWritten], offered, said: str) -> None:
    with pytest.raises(InputError, match=f"needs a base session that dot-regression has drawn onto a simplex.*{said}"):
        kind(**SMALL).fit(BASE, offered())


@pytest.mark.parametrize("images", [None, 2])
def test_the_bank_is_the_factors_of_crops_by_admm(images: int | None) -> None:
    bank = taught(CfAsWritten, 0, images=images)[0].bank
    used = BASE.images if images is None else BASE.images.subset([0, 1, 6, 7, 12, 13, 18, 19])
    assert (bank.record.crops, bank.record.side, bank.record.rows) == (10, 9, 10 * len(used))
    crops = extract(BACKBONE, random_crops(used, BACKBONE.framing, 10, 9, seed=0), engine="torch", device="cpu")
    expected = nmf(crops, 6, solver="admm", seed=0).concepts
    torch.testing.assert_close(bank.concepts, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("dataset", "bank", "tuning"),
    [
        ("cifar100", (64, 10, 18), ((20, 80), 0.25, 64)),
        ("miniimagenet", (64, 10, 18), ((120, 190), 0.025, 64)),
        ("cub200", (72, 10, 64), ((80, 150), 0.05, 64)),
    ],
)
def test_each_data_set_has_the_papers_constants(
    dataset: str, bank: tuple[int, ...], tuning: tuple[object, ...]
) -> None:
    for kind in (CfAsWritten, MasilAsWritten):
        method = kind(**kind.published.get(dataset, {}))
        assert (method.concepts, method.crops, method.side) == bank
        assert method.images is None
    assert (method.iterations, method.lr, method.batch) == tuning
    assert method.alpha == 0.5  # the middle of the paper's interval, as the notes on the paper say


def test_induced_vectors_are_the_mean_coefficients_through_concepts_and_the_first_layer() -> None:
    method, checked = taught(CfAsWritten, 0)
    # Rows of a class that differ, also in length, so that it matters of what the mean is taken.
    rows = torch.rand(6, BACKBONE.features, generator=torch.Generator().manual_seed(5)).pow(4)
    rows = rows * torch.tensor([1.0, 2.0, 8.0, 1.0, 2.0, 8.0])[:, None]
    shots = Samples(rows, SESSIONS[0].images, labels=SESSIONS[0].labels)
    checked.learn(shots)
    Q = method.bank.concepts.double().numpy()
    P = torch.tensor(np.stack([nnls(Q.T, row.double().numpy())[0] for row in shots.activations]))
    means = torch.stack([P[shots.labels == label].mean(0) for label in (4, 5)])
    with torch.no_grad():
        expected = functional.normalize(method.g.transform((means @ torch.tensor(Q)).float()))
        each = functional.normalize(method.g.transform((P @ torch.tensor(Q)).float()))
    torch.testing.assert_close(method.vectors[4:], expected, atol=1e-4, rtol=1e-3)
    of_embeddings = torch.stack([each[shots.labels == label].mean(0) for label in (4, 5)])
    assert float((of_embeddings - expected).norm(dim=1).min()) > 0.01  # another mean would be seen


def test_without_fine_tuning_no_vector_moves_and_with_it_those_of_all_classes_seen_do() -> None:
    one, two = taught(CfAsWritten, 1)[0].vectors, taught(CfAsWritten, 2)[0].vectors
    assert torch.equal(one, two[:6])
    gram = two[:4] @ two[:4].T  # of a simplex of all eight classes
    torch.testing.assert_close(gram, torch.full((4, 4), -1 / 7).fill_diagonal_(1), atol=1e-5, rtol=0)
    tuned = taught(MasilAsWritten)[0]
    torch.testing.assert_close(two, tuned.induced)
    moved = (tuned.vectors - tuned.induced).norm(dim=1)
    assert bool((moved > 1e-5).all())
    remarks = tuned.remarks()
    assert remarks["moved"]["base"] == pytest.approx(float(moved[:4].mean()))
    assert remarks["bank"] == {"concepts": 6, "crops": 10, "side": 9, "rows": 240}
    assert remarks["concept_cosine"]["plain"] >= 0


def test_the_memory_holds_the_mean_embedding_of_every_class_seen() -> None:
    method, checked = taught(MasilAsWritten)
    embedded = [(checked.geometry(part)[0], part.labels) for part in (BASE, *SESSIONS)]
    means = [z[labels == label].mean(0) for z, labels in embedded for label in labels.unique()]
    torch.testing.assert_close(method.memory, torch.stack(means))


def test_a_session_goes_on_from_the_last_one_is_drawn_to_what_was_induced_and_takes_its_share_of_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Tensor, TuningData, object]] = []

    def noted(start: Tensor, data: TuningData, **settings: object) -> Tensor:
        asked.append((start, data, settings["iterations"]))
        return start + 1

    monkeypatch.setattr("masil.methods.masil_paper.fine_tune_simplex", noted)
    taught(MasilAsWritten, iterations=(120, 190))
    (first, of_first, few), (second, of_second, many) = asked
    assert (few, many) == (120, 190)
    for start, data, k in ((first, of_first, 6), (second, of_second, 8)):
        assert [len(rows) for rows in (start, data.memory, data.induced)] == [k] * 3
    assert torch.equal(first, of_first.induced)
    assert torch.equal(second, torch.cat([first + 1, of_second.induced[6:]]))
    assert torch.equal(of_second.induced[:6], of_first.induced)


def session(k: int = 7, d: int = 9, n: int = 6) -> TuningData:
    draw = torch.Generator().manual_seed(3)
    rows = [functional.normalize(torch.randn(size, d, generator=draw).double()) for size in (n, k)]
    induced = torch.cat([simplex_etf(k - 2, d, draw), functional.normalize(torch.randn(2, d, generator=draw))]).double()
    return TuningData(rows[0], torch.tensor([5, 5, 5, 6, 6, 6]), 0.8 * rows[1], induced)


def minimum(data: TuningData, alpha: float, memory: float = 1.0) -> Tensor:
    """(HᵀH/|D| + M Mᵀ/|M| + αI) w = Σh/|D| + M/|M| + αŵ, class by class."""
    found = []
    for y, (M, w) in enumerate(zip(data.memory, data.induced, strict=True)):
        H = data.embeddings[data.labels == y]
        share, part = 1 / len(data.labels), memory / len(data.memory)
        left = share * H.T @ H + part * torch.outer(M, M) + alpha * torch.eye(len(w)).double()
        found.append(torch.linalg.solve(left, share * H.sum(0) + part * M + alpha * w))
    return torch.stack(found)


def test_the_loss_is_the_papers() -> None:
    data = session()
    W = torch.randn(7, 9, generator=torch.Generator().manual_seed(0)).double()
    shots = [(float(W[y] @ h) - 1) ** 2 for h, y in zip(data.embeddings, data.labels.tolist(), strict=True)]
    memory = [(float(w @ m) - 1) ** 2 for w, m in zip(W, data.memory, strict=True)]
    expected = sum(shots) / 6 + sum(memory) / 7 + 0.3 * float((W - data.induced).square().sum())
    assert float(final_loss(W, data, 0.3, torch.arange(6), torch.arange(7))) == pytest.approx(expected)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_enough_iterations_end_at_the_exact_minimum_in_which_the_memory_takes_part(alpha: float) -> None:
    data = session()
    exact, forgetful = minimum(data, alpha), minimum(data, alpha, memory=0.0)
    tuned = fine_tune_simplex(
        data.induced, data, alpha=alpha, iterations=4000, lr=0.25, batch=64, generator=torch.Generator()
    )
    torch.testing.assert_close(tuned, exact, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(forgetful[:5], data.induced[:5])  # without it base classes would not move
    assert float((tuned[:5] - data.induced[:5]).norm(dim=1).min()) > 0.01


def test_both_layers_of_a_balanced_product_descend_with_momentum_along_cosines_that_restart() -> None:
    """The loop by hand: Eq. final_loss's slope, the product rule, and three cosines of 2, 4 and 8 steps."""
    data, alpha = session(), 0.5
    U, S, Vt = torch.linalg.svd(data.induced, full_matrices=False)
    A, B = U * S.sqrt(), S.sqrt()[:, None] * Vt
    runs = [torch.zeros_like(A), torch.zeros_like(B)]
    for length in (2, 4, 8):
        for step in range(length):
            W = A @ B
            slope = 2 * alpha * (W - data.induced)
            for h, y in zip(data.embeddings, data.labels.tolist(), strict=True):
                slope[y] += 2 / len(data.labels) * (W[y] @ h - 1) * h
            for y, M in enumerate(data.memory):
                slope[y] += 2 / len(data.memory) * (W[y] @ M - 1) * M
            runs = [0.9 * run + part for run, part in zip(runs, (slope @ B.T, A.T @ slope), strict=True)]
            rate = 0.25 * (1 + math.cos(math.pi * (step + 0.5) / length)) / 2
            A, B = A - rate * runs[0], B - rate * runs[1]
    tuned = fine_tune_simplex(
        data.induced, data, alpha=alpha, iterations=14, lr=0.25, batch=64, generator=torch.Generator()
    )
    torch.testing.assert_close(tuned, A @ B, atol=1e-6, rtol=1e-6)


def test_an_iteration_sees_no_more_shots_and_classes_than_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def noted(W: Tensor, data: TuningData, alpha: float, shots: Tensor, remembered: Tensor) -> Tensor:
        sizes.append((len(shots), len(remembered)))
        return final_loss(W, data, alpha, shots, remembered)

    monkeypatch.setattr("masil.methods.masil_paper.final_loss", noted)
    fine_tune_simplex(
        session().induced, session(), alpha=0.5, iterations=4, lr=0.1, batch=4, generator=torch.Generator()
    )
    assert sizes == [(4, 4), (2, 3), (4, 4), (2, 3)]  # of six shots and seven classes


def test_the_rate_restarts_and_what_diverges_or_is_outside_the_paper_is_a_sentence() -> None:
    factors = [SGDR.factor(step, 70) for step in range(70)]
    restarts = [step for step in range(1, 70) if factors[step] > factors[step - 1]]
    assert restarts == [10, 30]
    with pytest.raises(MasilError, match=r"diverged at a rate of 300\.0"):
        fine_tune_simplex(
            session().induced, session(), alpha=1.0, iterations=200, lr=300.0, batch=64, generator=torch.Generator()
        )
    with pytest.raises(InputError, match=r"`alpha` is 1.5, but the paper has it in \[0, 1\]"):
        MasilAsWritten(alpha=1.5)


@pytest.mark.parametrize("name", ["masil-as-written", "cf-as-written"])
def test_it_plays_by_the_rules_of_every_method(name: str) -> None:
    kind = METHODS[name]
    first, checked = taught(kind)
    again, _ = taught(kind)
    assert torch.equal(first.vectors, again.vectors)
    predicted = checked.predict(ASKED)
    assert predicted.dtype == torch.int64
    assert set(predicted.tolist()) <= set(range(8))
    z, vectors = checked.geometry(Queries(ASKED.activations))
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(8))
    assert torch.equal((z @ first.vectors.T).argmax(1), predicted)
    checked.fit(BASE, task())
    assert set(checked.predict(ASKED).tolist()) <= set(range(4))
