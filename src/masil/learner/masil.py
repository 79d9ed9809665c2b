"""Masil: teach an image classifier new classes from a few photos each, without forgetting the old ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
import torch
from torch import Tensor

from masil.backbones import Backbone
from masil.collapse import Embedding
from masil.errors import DataError, InputError, suggest
from masil.learner.answers import Answers, Evaluation, ModelCard, Taught, TaughtClass, known_classes, neighbours
from masil.learner.answers import evaluate as compare
from masil.learner.core import Base, Scores, class_offsets, fit_base, score, teach
from masil.learner.encoder import Encoder, read_base_session, read_labelled
from masil.learner.estimator import Estimator
from masil.learner.explain import Crop, Explanation, ImageFeatures, explain, nearest_crops, run_once
from masil.learner.inputs import Label, as_array, as_batch, class_codes, read_label, read_labels
from masil.learner.model_file import SavedModel, read_model, write_model
from masil.learner.prior import fit_concepts
from masil.learner.rehearsal import choose_points
from masil.learner.rows import ClassRows, Counts, Event, SessionRecord, SessionRows, Shots, now, replay, teacher_name
from masil.learner.settings import Alpha, core_settings, for_trained, read_settings
from masil.protocol import Protocol

if TYPE_CHECKING:
    from masil.training import Trained

NEAREST = 3  # classes that a class which was just taught may be confused with


@final
@dataclass(eq=False, repr=False)
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
        shrinkage: of whitening: "sampling" (what so many images leave uncertain of equal variances), "auto" (what tells
            some base classes best apart when others made the covariance), or a number of mean variances.
        alpha: the prior's precision relative to the shots' (Eq. final_loss). "auto" measures it on base classes that
            play novel; 0 is shots alone, inf is concepts alone.
        reading: of Eq. final_loss: "posterior" (distances) or "literal" (squared inner products).
        solver: "exact", or "sgdr" for the paper's iterations.
        calibration: "concepts", "teen" (draw novel vectors to similar base ones), "both", or None for plain means.
        teen: weight of that pull.
        balance: how much of half the score that each class expects of its own images is taken off it, so that classes
            of many images and of a few compete on one scale. 1, the midpoint, if not given; 0 compares cosines as they
            are; in between, where the backbone has been trained on the base images and expects too much of them.
        aim: instead of a balance, what `fit` chooses it for, in two smaller base sessions in which some base classes
            play novel: "accuracy" over all classes, or the "harmonic" mean of base and novel accuracy. To a backbone
            that was trained on these classes they are not new, and the choice is too strong: see `from_trained`.
        bias: subtracted from the scores of base classes, on top of that.
        crops: of each base image, for a bank of parts (the paper takes 10); 0 makes it of the whole images, which is
            the better prior for whole images.
        side: of a crop in framed pixels; by default the paper's share of the image.
        device: on which the backbone runs; sessions are small and are computed on the processor.
        seed: of everything random.

    """

    backbone: str | Backbone | None = "efficientnet_lite0"
    _: KW_ONLY
    weights: str | Path | None = "imagenet"
    concepts: int = 64
    embedding: str | Embedding = "whitening"
    class_vectors: Tensor | None = None
    class_names: Sequence[Label] | None = None
    power: float = 0.5
    shrinkage: float | str = "sampling"
    alpha: Alpha = "auto"
    reading: str = "posterior"
    solver: str = "exact"
    calibration: str | None = "concepts"
    teen: float = 0.3
    balance: float | None = None
    aim: str | None = None
    bias: float = 0.0
    crops: int = 0
    side: int | None = None
    device: str = "auto"
    seed: int = 0
    # What is learnt, all of it set by `fit` or `load`, and always replaced as a whole.
    encoder_: Encoder = field(init=False)
    base_: Base = field(init=False)
    session_rows_: tuple[SessionRows, ...] = field(init=False)
    log_: tuple[Event, ...] = field(init=False)  # only grows
    memory_: ClassRows = field(init=False)

    @classmethod
    def from_trained(cls, trained: Trained, **params: Any) -> Self:
        """Make a learner on a base session's backbone; with a projection, on its embeddings and its frame too.

        Vectors of the frame go to the classes of the same names. A base session that kept no names has numbered its
        classes: labels 0 … k − 1 are then those numbers; for other labels the images must show which vector is whose.

        What it expects of base images it expects of images that the backbone was trained on, which is too much. Hence
        an `aim`, "accuracy" if not given, stands for a balance that was found with other backbones, trained without
        some of the classes: `TRAINED_BALANCE`.
        """
        params = for_trained(params)
        if trained.projection is not None:
            names: Sequence[Label] = trained.names or tuple(range(len(trained.class_vectors)))
            frame = {} if "class_vectors" in params else {"class_vectors": trained.class_vectors, "class_names": names}
            params = {"embedding": trained.projection, "power": 1.0, **frame, **params}
        return cls(trained.backbone, **params)

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
        return tuple(session.record for session in self.session_rows_)

    @property
    def offsets_(self) -> Tensor:
        """What is subtracted from the cosine of each class before they are compared, [k]."""
        self._check_fitted()
        return class_offsets(self.base_, self.memory_, core_settings(self))

    @property
    def balance_(self) -> float:
        """The strength of balance in force: the one given, or the one `fit` chose for the aim."""
        self._check_fitted()
        return core_settings(self).strength(self.base_.points)

    def fit(
        self,
        images: Any,
        labels: Any = None,
        *,
        taught_by: str | None = None,
        note: str = "",
        confidence: bool = True,
        like: Protocol | None = None,
    ) -> Self:
        """Take in the base session, forgetting everything before it. Labels may come with `masil.data.Images`.

        Without `confidence` it takes less time, and the model knows neither how sure to be nor what it was never
        taught; what it predicts is the same. With an `aim`, the classes that play novel are as many, with as many
        shots, as in the protocol `like` which the sessions to come will be; two of five, with five shots, if not given.
        """
        data = read_base_session(self, images, labels)
        points = None if self.aim is None else choose_points(data, like)
        concepts = fit_concepts(data.shots, data.settings, data.crops)
        self.base_, rows = fit_base(
            data.shots, data.settings,
            concepts=concepts, class_vectors=data.class_vectors, confidence=confidence, points=points,
        )  # fmt: skip
        self.encoder_, self.session_rows_, self.log_ = data.encoder, (), ()
        self._add(SessionRows(0, now(), teacher_name(taught_by), note, rows=rows))
        return self

    def learn(
        self, images: Any, labels: Any = None, *, update: bool = False, taught_by: str | None = None, note: str = ""
    ) -> Self:
        """Take in one session: new classes, and with `update` also more images of known ones.

        Nothing of the images is kept but what `memory_` holds. Old class vectors stay as they are.
        """
        self._teach(images, labels, update, teacher_name(taught_by), note=note)
        return self

    def teach(
        self, images: Any, labels: Any = None, *, update: bool = False, taught_by: str | None = None, note: str = ""
    ) -> Taught:
        """Do what `learn` does, and say how well the new classes are told from the others."""
        before, shots = self._teach(images, labels, update, teacher_name(taught_by), note=note)
        right = self._score(shots.x).values.argmax(1) == class_codes(shots.labels, self.memory_.labels)[shots.codes]
        recognised = torch.bincount(shots.codes[right], minlength=len(shots.labels)).tolist()
        rows = zip(shots.labels, shots.counts.tolist(), recognised, strict=True)
        classes = tuple(
            TaughtClass(label, count, label in before, right_count, nearest=neighbours(self.memory_, label, NEAREST))
            for label, count, right_count in rows
        )
        return Taught(self.session_rows_[-1].record, classes)

    def refuse_known(self, labels: Sequence[Label]) -> None:
        """Refuse to teach a class as new that is known already."""
        self._check_fitted()
        if again := [label for label in labels if label in self.memory_.labels]:
            raise InputError(
                f"The class {min(again)!r} is known already; to add images to it, teach it with `update`, to replace "
                "it, forget it first. Nothing was learnt."
            )

    def predict(self, images: Any, *, unknown: Label | None = None) -> np.ndarray[Any, Any]:
        """Give the class of each image, or `unknown` where its class seems never to have been taught.

        Without `unknown`, every image gets a class. Where labels are numbers, `unknown` is one too, say −1.
        """
        self._check_fitted()
        if unknown is None:
            named: np.ndarray[Any, Any] = self.classes_[self._score(self._encode(images)).values.argmax(1).numpy()]
            return named
        (unknown,) = read_labels([unknown], 1, self.memory_.labels)
        if unknown in self.memory_.labels:
            raise InputError(f"What stands for 'never taught' is {unknown!r}, but that is a class; take another word.")
        answers = self.answer(images)
        named = self.classes_[answers.probabilities.argmax(1).numpy()]
        return np.where(answers.rejected().numpy(), as_array([unknown]), named)

    def predict_proba(self, images: Any) -> np.ndarray[Any, Any]:
        """Give the probability of each class [n k], columns as in `classes_`, if the image is of one of them."""
        self._check_fitted()
        probabilities: np.ndarray[Any, Any] = self._answers(self._score(self._encode(images))).probabilities.numpy()
        return probabilities

    def known(self, images: Any) -> np.ndarray[Any, Any]:
        """Give the probability [n] that each image is of a class that was taught, at even odds."""
        probability: np.ndarray[Any, Any] = self.answer(images).probability_known().numpy()
        return probability

    def answer(self, images: Any, *, skip_bad: bool = False) -> Answers:
        """Give all there is to say of each image from one look at it: `predict_proba` and `known`.

        With `skip_bad`, an image that cannot be read is in the `faults` of the answers, and the others are answered.
        """
        self._check_fitted()
        faults: dict[int, DataError] = {}
        x = self._encode(images, faults if skip_bad else None)
        return self._answers(self._score(x, known=True), faults)

    def score(self, images: Any, labels: Any = None) -> float:
        """Give the share of images whose class is found."""
        self._check_fitted()
        given, names = read_labelled(self.encoder_, images, labels, self.memory_.labels)
        predicted = self.predict(given).tolist()
        return sum(1 for label, name in zip(predicted, names, strict=True) if label == name) / len(names)

    def evaluate(self, images: Any, labels: Any = None) -> Evaluation:
        """Test old and new classes, and whether the model notices classes that it was never taught."""
        self._check_fitted()
        given, names = read_labelled(self.encoder_, images, labels, self.memory_.labels)
        return compare(self.memory_, self.answer(given), names)

    def explain(self, image: Any, count: int = 3) -> Explanation:
        """Say which `count` concepts spoke for the class of one image against the runner-up, and where they lie."""
        self._check_fitted()
        backbone = self.encoder_.backbone
        given = self.encoder_.read(as_batch(image, backbone is None))
        if len(given) != 1:
            raise InputError(f"One image is explained at a time, but {len(given)} were given.")
        if isinstance(given, Tensor) or backbone is None:
            features = ImageFeatures(self.base_.take_power(self.encoder_.activations(given)))
        else:
            features = run_once(self.base_, backbone, given.load([0], backbone.framing)[0])
        scores = self._score(features.x, known=True)
        answer = self._answers(scores).ranked(2)[0]
        return explain(self.base_, self.memory_, features, scores, answer=answer, count=count)

    def nearest_crops(self, images: Any, concepts: Sequence[int], count: int = 3) -> tuple[tuple[Crop, ...], ...]:
        """Show what concepts look like: for each, crops of the `count` images in which it is strongest."""
        self._check_fitted()
        backbone, given = self.encoder_.backbone, self.encoder_.read(images)
        if backbone is None or isinstance(given, Tensor):
            raise InputError("This learner takes activations, so there are no photos to show concepts in.")
        return nearest_crops(self.base_, backbone, given, concepts, count=count)

    def describe(self) -> ModelCard:
        """Say what the model is, what it knows, and how it came to know it."""
        self._check_fitted()
        backbone, base, memory = self.encoder_.backbone, self.base_, self.memory_
        return ModelCard(
            backbone=None if backbone is None else backbone.name,
            image_side=None if backbone is None else backbone.framing.crop,
            features=base.features,
            embedding=base.embedding.form,
            concepts=base.bank.v,
            temperature=base.temperature,
            aim=self.aim,
            balance=self.balance_,
            unknown_auroc=None if base.unknown_detector is None else base.unknown_detector.auroc,
            memory_bytes=memory.nbytes,
            bytes_per_class=memory.bytes_per_class,
            classes=known_classes(memory, self.sessions_),
            sessions=self.sessions_,
            log=self.log_,
        )

    def undo(self, *, by: str | None = None) -> SessionRecord:
        """Drop the last session as if it had not been, and give its record. Forgotten classes do not come back."""
        self._check_fitted()
        *kept, dropped = self.session_rows_
        if not kept:
            raise InputError("Only the base session is left, and that cannot be undone; `fit` starts again.")
        if not any(session.rows.labels for session in kept):
            raise InputError("Without the last session no class would be left; a classifier needs one.")
        self._set_sessions(tuple(kept))
        self._log("undone", dropped.number, dropped.record.images, by)
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
        base, *later = (session.without(label) for session in self.session_rows_)
        self._set_sessions((base, *(session for session in later if session.rows.labels)))
        self._log("forgotten", None, ((label, images),), by)

    def save(self, path: str | Path) -> None:
        """Write the model to one file; whenever the process dies, the old or the new one is there, whole."""
        self._check_fitted()
        saved = SavedModel(self.get_params(), self.encoder_, self.base_, self.session_rows_, log=self.log_)
        write_model(Path(path), saved)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", backbone: Backbone | None = None) -> Self:
        """Read a model that `save` wrote. A backbone that no name can rebuild is given again."""
        saved = read_model(Path(path), device, backbone)
        model = cls().set_params(**saved.params)
        model.encoder_, model.base_, model.log_ = saved.encoder, saved.base, saved.log
        model._set_sessions(saved.sessions)
        return model

    def _encode(self, images: Any, faults: dict[int, DataError] | None = None) -> Tensor:
        """Give a^p [n d] of images."""
        return self.base_.take_power(self.encoder_.activations(self.encoder_.read(images), faults))

    def _score(self, x: Tensor, *, known: bool = False) -> Scores:
        return score(self.base_, self.memory_, x, core_settings(self), known=known)

    def _answers(self, scores: Scores, faults: dict[int, DataError] | None = None) -> Answers:
        probabilities = torch.softmax(self.base_.temperature * scores.values.double(), 1)
        detector = self.base_.unknown_detector
        threshold = 0.0 if detector is None else detector.threshold
        return Answers(self.memory_.labels, probabilities, scores.known, threshold, faults=faults or {})

    def _teach(self, images: Any, labels: Any, update: bool, who: str, *, note: str) -> tuple[tuple[Label, ...], Shots]:
        """Take in one session, and give the classes that were known before it, and its shots."""
        self._check_fitted()
        settings, memory = read_settings(self, stacklevel=3), self.memory_
        given, names = read_labelled(self.encoder_, images, labels, memory.labels)
        classes = tuple(sorted(set(names)))
        if not update:
            self.refuse_known(classes)
        x = self.base_.take_power(self.encoder_.activations(given))
        shots = Shots(x, class_codes(names, classes), classes)
        rows = teach(self.base_, memory, shots, settings)
        self._add(SessionRows(self.session_rows_[-1].number + 1, now(), who, note, rows=rows))
        return memory.labels, shots

    def _add(self, session: SessionRows) -> None:
        """Append a session to those before it."""
        memory = self.memory_.updated(session.rows) if self.session_rows_ else session.rows
        self.session_rows_, self.memory_ = (*self.session_rows_, session), memory
        taught = Event(
            "taught", session.when, session.who, session.number, images=session.record.images, note=session.note
        )
        self.log_ = (*self.log_, taught)

    def _set_sessions(self, sessions: tuple[SessionRows, ...]) -> None:
        self.session_rows_, self.memory_ = sessions, replay(sessions)

    def _log(self, what: str, session: int | None, images: Counts, by: str | None) -> None:
        self.log_ = (*self.log_, Event(what, now(), teacher_name(by), session, images=images))
