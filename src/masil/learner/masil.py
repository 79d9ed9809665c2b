"""Masil: teach an image classifier new classes from a few photos each, without forgetting the old ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from torch import Tensor

from masil.backbones import Backbone
from masil.collapse import Embedding
from masil.data import Images
from masil.errors import InputError, suggest
from masil.learner.balance import TRAINED_BALANCE, offsets
from masil.learner.base import (
    Base,
    calibrate,
    fit_bank,
    make_embedding,
    measure_prior,
    powered,
    reconstruct_held_out,
)
from masil.learner.confidence import Answers
from masil.learner.encoder import Encoder, Given
from masil.learner.estimator import Estimator
from masil.learner.explanation import Explanation, explain
from masil.learner.frame import by_images, read_vectors
from masil.learner.inputs import alone
from masil.learner.labels import Label, as_array, places, read_label, read_labels
from masil.learner.memory import Event, Lesson, Memory, SessionRecord, account, now, unit
from masil.learner.model_file import read_model, write_model
from masil.learner.session import Alpha, base_lesson, teach
from masil.learner.settings import read_rules
from masil.learner.unknown import Rejector, evidence, tightness
from masil.progress import bar
from masil.training import Trained


@final
class Masil(Estimator):
    """A classifier that learns sessions of new classes: shots are the data, concepts of the base classes the prior.

    `fit` is the base session: it runs the images through the backbone once, and learns g, the concept bank and how far
    to trust it. `learn` is a session of any number of new classes with any number of images each. A class becomes one
    unit vector; an image goes to the class whose vector has the largest cosine to its embedding.

    Args:
        backbone: a name in `masil.backbones.BACKBONES`, a `Backbone`, or None to give activations [n d] >= 0 instead
            of images, from an encoder of your own.
        weights: for a named backbone: "imagenet", the path of a weight file, or None for a random start.
        concepts: in the bank; fewer where there are fewer rows or features.
        embedding: g: "whitening" (variability collapse in closed form), "linear" (g = identity), or an `Embedding`
            that a base session has trained.
        class_vectors: [k d'] the base classes' vectors, where a base session has trained an embedding to them; their
            mean embeddings if not given.
        class_names: the class of each of these vectors, in their order. Labels 0 … k − 1 are found without names. Other
            labels, where no names are given, must be such that there is no doubt about the order they sort in.
        power: p of a^p, taken once before anything else sees activations.
        shrinkage: of whitening, in mean variances, or "auto".
        alpha: the prior's precision relative to the shots' (Eq. final_loss). "auto" measures it on base classes that
            play novel; 0 is shots alone, inf is concepts alone.
        reading: of Eq. final_loss: "posterior" (distances) or "literal" (squared inner products).
        solver: "exact", or "sgdr" for the paper's iterations.
        calibration: "concepts", "teen" (draw novel vectors to similar base ones), "both", or None for plain means.
        teen: weight of that pull.
        balance: how much of half the score that each class expects of its own images is taken off it, so that classes
            of many images and of a few compete on one scale. 1 is the midpoint; 0 compares cosines as they are; in
            between, where the backbone has been trained on the base images themselves and expects too much of them.
        bias: subtracted from the scores of base classes, on top of that.
        crops: of each base image, for a bank of parts (the paper takes 10); 0 makes it of the whole images, which is
            the better prior for whole images.
        side: of a crop in framed pixels; by default the paper's share of the image.
        device: on which the backbone runs; sessions are small and are computed on the processor.
        seed: of everything random.

    """

    def __init__(
        self,
        backbone: str | Backbone | None = "efficientnet_lite0",
        *,
        weights: str | Path | None = "imagenet",
        concepts: int = 64,
        embedding: str | Embedding = "whitening",
        class_vectors: Tensor | None = None,
        class_names: Sequence[Label] | None = None,
        power: float = 0.5,
        shrinkage: float | str = 1.0,
        alpha: Alpha = "auto",
        reading: str = "posterior",
        solver: str = "exact",
        calibration: str | None = "concepts",
        teen: float = 0.3,
        balance: float = 1.0,
        bias: float = 0.0,
        crops: int = 0,
        side: int | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.backbone = backbone
        self.weights = weights
        self.concepts = concepts
        self.embedding = embedding
        self.class_vectors = class_vectors
        self.class_names = class_names
        self.power = power
        self.shrinkage = shrinkage
        self.alpha = alpha
        self.reading = reading
        self.solver = solver
        self.calibration = calibration
        self.teen = teen
        self.balance = balance
        self.bias = bias
        self.crops = crops
        self.side = side
        self.device = device
        self.seed = seed

    @classmethod
    def from_trained(cls, trained: Trained, **params: Any) -> Self:
        """Make a learner on a base session's backbone; with a projection, on its embeddings and its frame too.

        Vectors of the frame go to the classes of the same names. A base session that kept no names has numbered its
        classes: labels 0 … k − 1 are then those numbers; for other labels the images must show which vector is whose.

        What it expects of base images it expects of images that the backbone was trained on, which is too much by about
        a third on base classes that play novel: hence balance = ¾.
        """
        params = {"balance": TRAINED_BALANCE, **params}
        if trained.projection is not None:
            names: Sequence[Label] = trained.names or tuple(range(len(trained.class_vectors)))
            frame = {} if "class_vectors" in params else {"class_vectors": trained.class_vectors, "class_names": names}
            params = {"embedding": trained.projection, "power": 1.0, **frame, **params}
        return cls(trained.backbone, **params)

    # What is learnt, all of it set by `fit` or `load`.
    encoder_: Encoder
    base_: Base
    lessons_: tuple[Lesson, ...]
    log_: tuple[Event, ...]  # only grows
    memory_: Memory

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "memory_")

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """The classes known, in the order of `predict_proba`'s columns."""
        self._check_fitted()
        return as_array(self.memory_.labels)

    @property
    def sessions_(self) -> tuple[SessionRecord, ...]:
        """Who taught what, when, from how many images: the sessions in force."""
        self._check_fitted()
        return tuple(lesson.record for lesson in self.lessons_)

    @property
    def offsets_(self) -> Tensor:
        """What is taken off the cosine of each class before they are compared, [k]."""
        self._check_fitted()
        memory = self.memory_
        return self.balance * offsets(memory.expected, memory.base) + self.bias * memory.base

    def fit(self, images: Any, labels: Any = None, *, taught_by: str | None = None, note: str = "") -> Self:
        """Take in the base session, forgetting everything before it. Labels may come with `masil.data.Images`."""
        rules = read_rules(self)
        encoder = Encoder.make(self.backbone, self.weights, self.seed, self.device)
        given, names = self._read(encoder, images, labels, ())
        classes = tuple(sorted(set(names)))
        if len(classes) < 2:
            raise InputError(f"The base session teaches {len(classes)} class; to tell classes apart takes at least 2.")
        codes = places(names, classes)
        vectors, certain = read_vectors(self.class_vectors, self.class_names, self.embedding, classes)
        x = powered(encoder.activations(given), self.power)
        crops = encoder.crops(given, self.crops, self.side, self.seed)
        rows = x if crops is None else powered(crops, self.power)
        with bar("Learning the base session", 4) as advance:
            g = make_embedding(self.embedding, x, codes, self.shrinkage)
            if vectors is not None and not certain:
                vectors = by_images(vectors, g, x, codes)
            advance(1)
            bank = fit_bank(rows, self.concepts, self.seed, max_iterations=1000)
            advance(1)
            prior = None
            if rules.alpha == "auto" and rules.with_concepts:
                row_codes = codes.repeat_interleave(len(rows) // len(x))
                reconstructed = reconstruct_held_out(x, codes, rows, row_codes, self.concepts, self.seed)
                prior = measure_prior(g, x, reconstructed, codes, self.seed)
            advance(1)
            found = calibrate(x, codes, self.embedding, self.shrinkage, vectors, self.balance, self.seed)
        base = Base(self.power, g, bank, prior, found.temperature, vectors is not None, found.rejector)
        lesson = base_lesson(base, x, codes, classes, vectors, found.expected, account(taught_by), note)
        self.encoder_, self.base_, self.lessons_, self.log_ = encoder, base, (), ()
        self._add(lesson)
        return self

    def learn(
        self, images: Any, labels: Any = None, *, update: bool = False, taught_by: str | None = None, note: str = ""
    ) -> Self:
        """Take in one session: new classes, and with `update` also more images of known ones.

        Nothing of the images is kept but what `memory_` holds. Old class vectors stay as they are.
        """
        self._check_fitted()
        rules = read_rules(self)
        given, names = self._read(self.encoder_, images, labels, self.memory_.labels)
        classes = tuple(sorted(set(names)))
        known = set(self.memory_.labels)
        if not update and (again := [label for label in classes if label in known]):
            raise InputError(
                f"The class {again[0]!r} is known already; to add images to it, call learn(…, update=True), "
                "to replace it, forget it first."
            )
        lesson = teach(
            self.base_, self.memory_, rules, self.encoder_.activations(given), places(names, classes), classes,
            number=self.lessons_[-1].number + 1, who=account(taught_by), note=note,
        )  # fmt: skip
        self._add(lesson)
        return self

    def predict(self, images: Any, *, unknown: Label | None = None) -> np.ndarray[Any, Any]:
        """Give the class of each image, or `unknown` where its class seems never to have been taught.

        Without `unknown`, every image gets a class. Where labels are numbers, `unknown` is one too, say −1.
        """
        if unknown is None:
            best = self._scores(images).argmax(1)
            found: np.ndarray[Any, Any] = self.classes_[best.numpy()]
            return found
        self._check_fitted()
        (unknown,) = read_labels([unknown], 1, self.memory_.labels)
        if unknown in self.memory_.labels:
            raise InputError(f"What stands for 'never taught' is {unknown!r}, but that is a class; take another word.")
        answers = self.answer(images)
        named = self.classes_[answers.probabilities.argmax(1).numpy()]
        return np.where(answers.rejected().numpy(), as_array([unknown]), named)

    def predict_proba(self, images: Any) -> np.ndarray[Any, Any]:
        """Give the probability of each class [n k], columns as in `classes_`: all of them, if it is one of these."""
        found: np.ndarray[Any, Any] = self._probabilities(self._scores(images)).numpy()
        return found

    def known(self, images: Any) -> np.ndarray[Any, Any]:
        """Give the probability [n] that each image is of a class that was taught, at even odds."""
        found: np.ndarray[Any, Any] = self.answer(images).probability_known().numpy()
        return found

    def answer(self, images: Any) -> Answers:
        """Give all there is to say of each image from one look at it: `predict_proba` and `known`."""
        self._check_fitted()
        activations = self.encoder_.activations(self.encoder_.read(images))
        probabilities = self._probabilities(self._scored(activations))
        rejector = self.base_.rejector
        known, threshold = (None, 0.0) if rejector is None else (self._known(activations, rejector), rejector.threshold)
        return Answers(self.memory_.labels, probabilities, known, threshold)

    def score(self, images: Any, labels: Any = None) -> float:
        """Give the share of images whose class is found."""
        self._check_fitted()
        given, names = self._read(self.encoder_, images, labels, self.memory_.labels)
        found = self.predict(given)
        return sum(1 for a, b in zip(found.tolist(), names, strict=True) if a == b) / len(names)

    def explain(self, image: Any, count: int = 3) -> Explanation:
        """Say which `count` concepts spoke for the class of one image against the runner-up, and where they lie."""
        self._check_fitted()
        given = self.encoder_.read(alone(image, self.encoder_.backbone is None))
        if len(given) != 1:
            raise InputError(f"One image is explained at a time, but {len(given)} were given.")
        activations = self.encoder_.activations(given)
        order = self._scored(activations)[0].argsort(descending=True).tolist()
        own, other = order[0], order[1] if len(order) > 1 else None
        vectors, labels, taken = self.memory_.vectors, self.memory_.labels, self.offsets_
        offset = (0.0 if other is None else float(taken[other])) - float(taken[own])
        pixels = None
        if isinstance(given, Images) and self.encoder_.backbone is not None:
            pixels = given.load([0], self.encoder_.backbone.framing)[0]
        return explain(
            self.base_, activations[0], vectors[own], None if other is None else vectors[other],
            (labels[own], None if other is None else labels[other]), offset, pixels, self.encoder_.backbone, count,
        )  # fmt: skip

    def undo(self, *, by: str | None = None) -> SessionRecord:
        """Drop the last session as if it had not been, and give its record. Forgotten classes do not come back."""
        self._check_fitted()
        if len(self.lessons_) == 1:
            raise InputError("Only the base session is left, and that cannot be undone; `fit` starts again.")
        dropped, kept = self.lessons_[-1], self.lessons_[:-1]
        if not any(lesson.labels for lesson in kept):
            raise InputError("Without the last session no class would be left; a classifier needs one.")
        self._put(kept)
        self._note("undone", dropped.number, dropped.record.images, by)
        return dropped.record

    def forget(self, label: Label, *, by: str | None = None) -> None:
        """Erase a class from every session. This cannot be undone; the log keeps only its name and counts."""
        self._check_fitted()
        label = read_label(label)
        labels = self.memory_.labels
        if label not in labels:
            raise InputError(f"There is no class {label!r} to forget; {suggest(str(label), map(str, labels))}")
        if len(labels) == 1:
            raise InputError(f"{label!r} is the only class left; a classifier needs one.")
        images = int(self.memory_.counts[labels.index(label)])
        kept = tuple(lesson.without(label) for lesson in self.lessons_)
        self._put((kept[0], *(lesson for lesson in kept[1:] if lesson.labels)))
        self._note("forgotten", None, ((label, images),), by)

    def save(self, path: str | Path) -> None:
        """Write the model to one file; whenever the process dies, the old or the new one is there, whole."""
        self._check_fitted()
        write_model(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", backbone: Backbone | None = None) -> Self:
        """Read a model that `save` wrote. A backbone that no name can rebuild is handed over again."""
        model = cls()
        read_model(model, Path(path), device, backbone)
        return model

    def restore(self, encoder: Encoder, base: Base, lessons: tuple[Lesson, ...], log: tuple[Event, ...]) -> None:
        """Take over what another learner has learnt."""
        self.encoder_, self.base_, self.log_ = encoder, base, log
        self._put(lessons)

    def _read(self, encoder: Encoder, images: Any, labels: Any, known: Sequence[Label]) -> tuple[Given, list[Label]]:
        given = encoder.read(images)
        if labels is None and isinstance(images, Images):
            labels = images.labels
        names = read_labels(labels, len(given), known)
        if not names:
            raise InputError("There are no images in this session; it needs at least one.")
        return given, names

    def _scores(self, images: Any) -> Tensor:
        self._check_fitted()
        return self._scored(self.encoder_.activations(self.encoder_.read(images)))

    def _scored(self, activations: Tensor) -> Tensor:
        """Give cosines [n k], less `offsets_`."""
        return self.base_.embed(activations) @ self.memory_.vectors.T - self.offsets_

    def _probabilities(self, scores: Tensor) -> Tensor:
        return torch.softmax(self.base_.temperature * scores.double(), 1)

    @torch.no_grad()
    def _known(self, activations: Tensor, rejector: Rejector) -> Tensor:
        g = self.base_.embedding.transform(self.base_.door(activations))
        memory = self.memory_
        facts = evidence(unit(g) @ memory.vectors.T, g.norm(dim=1), tightness(memory.means, memory.counts))
        return rejector.known(facts)

    def _add(self, lesson: Lesson) -> None:
        self._put((*self.lessons_, lesson), self.memory_.after(lesson) if self.lessons_ else None)
        self.log_ = (
            *self.log_,
            Event("taught", lesson.when, lesson.who, lesson.number, lesson.record.images, lesson.note),
        )

    def _put(self, lessons: tuple[Lesson, ...], memory: Memory | None = None) -> None:
        self.lessons_, self.memory_ = lessons, Memory.of(lessons) if memory is None else memory

    def _note(self, what: str, session: int | None, images: tuple[tuple[Label, int], ...], by: str | None) -> None:
        self.log_ = (*self.log_, Event(what, now(), account(by), session, images))
