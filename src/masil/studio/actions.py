"""What the studio does with a model: predict, learn, explain, undo, forget, draw heat maps. No HTTP here."""

import base64
import io
import time
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from masil import __version__
from masil.errors import InputError
from masil.learner import Masil
from masil.studio import schemas
from masil.studio.request_guard import Limits, RefusedError
from masil.studio.served_model import ServedModel
from masil.studio.uploads import Upload, decode_uploads, without_copies

NOBODY = "studio"  # who teaches where nobody says who
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # make a name look like another


def predict(served: ServedModel, uploads: Sequence[Upload], top: int, limits: Limits) -> schemas.Predictions:
    """Give the `top` most probable classes of each photo, and whether it is of any class that was taught."""
    model, photos = served.model, decode_uploads(uploads, served.framing, limits)
    start = time.perf_counter()
    predictions = []
    for position, answer in enumerate(model.answer(photos).ranked(top)):
        shares = [schemas.Share(label=str(best.label), probability=min(best.probability, 1.0)) for best in answer.top]
        predictions.append(
            schemas.Prediction(
                image=photos.name(position), label=shares[0].label, confidence=shares[0].probability,
                known=answer.known, unknown=answer.unknown, top=shares,
            )
        )  # fmt: skip
    return schemas.Predictions(revision=len(model.log_), predictions=predictions, milliseconds=_since(start))


def learn(
    served: ServedModel, uploads: Sequence[Upload], name: str, *, taught_by: str, update: bool, limits: Limits
) -> schemas.Learnt:
    """Teach one class, save the model, and say what the class may be confused with."""
    start = time.perf_counter()
    label = read_name(name, served.model, limits)
    if not update:
        served.model.refuse_known([label])  # before any photo is decoded
    photos = without_copies(decode_uploads(uploads, served.framing, limits))
    labels = [label] * len(photos)
    model, taught = served.change(lambda model: model.teach(photos, labels, update=update, taught_by=_who(taught_by)))
    (new,) = taught.classes
    return schemas.Learnt(
        revision=len(model.log_),
        session=schemas.Session.model_validate(taught.session),
        label=str(label),
        images=new.images,
        recognised=new.recognised,
        confused_with=[schemas.Neighbour.model_validate(neighbour) for neighbour in new.nearest],
        milliseconds=_since(start),
    )


def explain(served: ServedModel, upload: Upload, count: int, limits: Limits) -> schemas.Why:
    """Say which concepts spoke for the class, where they lie, and which spoke for the runner-up."""
    model, photo = served.model, decode_uploads([upload], served.framing, limits)
    start = time.perf_counter()
    told = model.explain(photo, count)
    assert told.heat is not None
    assert told.pixels is not None
    maps = {j: (colour, heat) for j, heat, colour in zip(told.concepts, told.heat, COLOURS, strict=False)}
    evidence = []
    for j in (*maps, *told.against(count)):
        colour, heat = maps.get(j, (None, None))
        evidence.append(
            schemas.Evidence(
                concept=j, contribution=float(told.contributions[j]), coefficient=float(told.coefficients[j]),
                colour=colour, heat=None if colour is None or heat is None else heat_url(heat, colour),
            )
        )  # fmt: skip
    return schemas.Why(
        revision=len(model.log_),
        label=str(told.label),
        runner_up=None if told.runner_up is None else str(told.runner_up),
        difference=told.difference,
        evidence=evidence,
        others=float(told.contributions.sum()) - sum(share.contribution for share in evidence),
        rest=told.rest,
        offset=told.offset,
        framed=framed_url(told.pixels),
        milliseconds=_since(start),
    )


def undo(served: ServedModel, expected: int | None, by: str | None) -> schemas.Undone:
    """Take back the last session; if it is not the one that was meant, nothing."""

    def step(model: Masil) -> schemas.Undone:
        last = model.sessions_[-1].number
        if expected is not None and expected != last:
            raise RefusedError(409, f"Session {expected} is not the last one, that is {last}; nothing was undone.")
        dropped = model.undo(by=_who(by))
        return schemas.Undone(revision=len(model.log_), session=schemas.Session.model_validate(dropped))

    return served.change(step)[1]


def forget(served: ServedModel, name: str, by: str | None) -> schemas.Forgotten:
    """Erase a class."""

    def step(model: Masil) -> schemas.Forgotten:
        label = _label(name, model)
        try:
            model.forget(label, by=_who(by))
        except InputError as error:
            raise RefusedError(409 if label in model.memory_.labels else 404, str(error)) from error
        return schemas.Forgotten(revision=len(model.log_), label=name)

    return served.change(step)[1]


def card(model: Masil, name: str, limits: Limits) -> schemas.Card:
    """Give the model card, with the limits of a request."""
    allowed = schemas.Allowed.model_validate(limits)
    about = vars(model.describe()) | {"name": name, "masil": __version__, "revision": len(model.log_)}
    return schemas.Card.model_validate(about | {"limits": allowed})


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


def _who(name: str | None) -> str:
    return (name or "").strip() or NOBODY


def _since(start: float) -> float:
    return 1000 * (time.perf_counter() - start)


COLOURS = ("#e4572e", "#1f7fbf", "#e0a100", "#8a4fbf", "#1f9d6b", "#d0367c")  # of concepts, strongest first
OPAQUE = 215  # of 255: under the hottest place the photo is still to be seen


def framed_url(pixels: Tensor) -> str:
    """Give uint8 [3 h w] as a PNG."""
    return _url(Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()))


def heat_url(heat: Tensor, colour: str) -> str:
    """Give a heat map [h w] in one colour, clear where there is no heat, with a white line around the hotter half."""
    warm = heat.clamp_min(0).numpy()
    share = warm / max(float(warm.max()), np.finfo(np.float32).tiny)
    pixels = np.empty((*warm.shape, 4), np.uint8)
    pixels[..., :3] = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    pixels[..., 3] = np.rint(share * OPAQUE)
    pixels[_outline(share >= 0.5)] = 255
    return _url(Image.fromarray(pixels))


def _outline(inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Give the places inside that have a neighbour outside."""
    around = np.pad(inside, 1, mode="edge")
    deep = around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
    return inside & ~deep


def _url(picture: Image.Image) -> str:
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=3)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
