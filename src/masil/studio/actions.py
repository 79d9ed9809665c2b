"""What the studio does with a model: predict, learn, explain, undo, forget. No HTTP here."""

from __future__ import annotations

import time
import unicodedata

from masil.data import Images
from masil.errors import InputError
from masil.learner import Masil
from masil.studio.answers import Evidence, Forgotten, Learnt, Prediction, Predictions, Share, Undone, Why
from masil.studio.card import neighbours, session
from masil.studio.drawing import COLOURS, framed_url, heat_url
from masil.studio.keeper import Keeper
from masil.studio.limits import Limits
from masil.studio.photos import without_copies
from masil.studio.refusal import RefusedError

NEIGHBOURS = 3
NOBODY = "studio"  # who teaches where nobody says who
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # make a name look like another


def predict(model: Masil, photos: Images, top: int) -> Predictions:
    """Give the `top` most probable classes of each photo, and whether it is of any class that was taught."""
    start = time.perf_counter()
    answers = model.answer(photos)
    best = answers.probabilities.topk(min(top, len(answers.labels)), 1)
    known = [None] * len(photos) if answers.known is None else answers.known.tolist()
    unknown = [None] * len(photos) if answers.known is None else answers.rejected().tolist()
    predictions = []
    for row in range(len(photos)):
        ranked = zip(best.indices[row].tolist(), best.values[row].tolist(), strict=True)
        shares = [Share(label=str(answers.labels[place]), probability=min(share, 1.0)) for place, share in ranked]
        predictions.append(
            Prediction(
                image=photos.name(row), label=shares[0].label, confidence=shares[0].probability,
                known=known[row], unknown=unknown[row], top=shares,
            )
        )  # fmt: skip
    return Predictions(revision=len(model.log_), predictions=predictions, milliseconds=_since(start))


def learn(keeper: Keeper, photos: Images, name: str, *, taught_by: str, update: bool, limits: Limits) -> Learnt:
    """Teach one class, save the model, and say what the class may be confused with."""
    start = time.perf_counter()
    photos = without_copies(photos)

    def step(model: Masil) -> str | int:
        label = read_name(name, model, limits)
        model.learn(photos, [label] * len(photos), update=update, taught_by=taught_by.strip() or NOBODY)
        return label

    model, label = keeper.change(step)
    place = model.memory_.labels.index(label)
    return Learnt(
        revision=len(model.log_),
        session=session(model.sessions_[-1]),
        label=str(label),
        images=len(photos),
        recognised=sum(1 for found in model.predict(photos).tolist() if found == label),
        confused_with=neighbours(model.memory_, place, NEIGHBOURS),
        milliseconds=_since(start),
    )


def explain(model: Masil, photo: Images, count: int) -> Why:
    """Say which concepts spoke for the class, where they lie, and which spoke for the runner-up."""
    start = time.perf_counter()
    found = model.explain(photo, count)
    assert found.heat is not None
    assert model.encoder_.backbone is not None
    shares = found.contributions
    against = [j for j in shares.argsort()[:count].tolist() if float(shares[j]) < 0]
    evidence = [
        Evidence(
            concept=j, contribution=float(shares[j]), coefficient=float(found.coefficients[j]),
            colour=colour, heat=heat_url(heat, colour),
        )
        for j, heat, colour in zip(found.concepts, found.heat, COLOURS, strict=False)
    ]  # fmt: skip
    evidence += [
        Evidence(
            concept=j, contribution=float(shares[j]), coefficient=float(found.coefficients[j]), colour=None, heat=None
        )
        for j in against
    ]
    return Why(
        revision=len(model.log_),
        label=str(found.label),
        runner_up=None if found.runner_up is None else str(found.runner_up),
        difference=found.difference,
        evidence=evidence,
        others=float(shares.sum()) - sum(each.contribution for each in evidence),
        rest=found.rest,
        offset=found.offset,
        framed=framed_url(photo.load([0], model.encoder_.backbone.framing)[0]),
        milliseconds=_since(start),
    )


def undo(keeper: Keeper, expected: int | None, by: str | None) -> Undone:
    """Take back the last session; if it is not the one that was meant, nothing."""

    def step(model: Masil) -> Undone:
        last = model.sessions_[-1].number
        if expected is not None and expected != last:
            raise RefusedError(409, f"Session {expected} is not the last one, that is {last}; nothing was undone.")
        dropped = model.undo(by=(by or "").strip() or NOBODY)
        return Undone(revision=len(model.log_), session=session(dropped))

    return keeper.change(step)[1]


def forget(keeper: Keeper, name: str, by: str | None) -> Forgotten:
    """Erase a class."""

    def step(model: Masil) -> Forgotten:
        label = _label(name, model)
        try:
            model.forget(label, by=(by or "").strip() or NOBODY)
        except InputError as error:
            raise RefusedError(409 if label in model.memory_.labels else 404, str(error)) from error
        return Forgotten(revision=len(model.log_), label=name)

    return keeper.change(step)[1]


def read_name(name: str, model: Masil, limits: Limits) -> str | int:
    """Give a class's name in one form, or say why it cannot be one."""
    plain = unicodedata.normalize("NFC", name).strip()
    if not plain or plain in (".", ".."):
        raise InputError(f"The class name {name!r} is empty or stands for a folder; give the class a name.")
    if len(plain) > limits.name_length:
        raise InputError(f"The class name has {len(plain)} characters; it may have {limits.name_length}.")
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in _BIDI for letter in plain):
        raise InputError(f"The class name {plain!r} has characters that cannot be seen, such as a line break.")
    return _label(plain, model)


def _label(name: str, model: Masil) -> str | int:
    """Give the name as this model names its classes, by strings or by whole numbers."""
    if isinstance(model.memory_.labels[0], str):
        return name
    if not name.lstrip("-").isdecimal():
        raise InputError(f"This model names its classes by whole numbers, so {name!r} cannot be one.")
    return int(name)


def _since(start: float) -> float:
    return 1000 * (time.perf_counter() - start)
