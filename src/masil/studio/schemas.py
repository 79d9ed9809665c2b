"""What the REST interface says, typed: the OpenAPI document is made of these."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Schema(BaseModel):
    """What is said to clients; made of the learner's results by their fields' names. Names of classes are text."""

    model_config = ConfigDict(from_attributes=True, coerce_numbers_to_str=True)


class Problem(Schema):
    """Why something was not done: one sentence, the same that the command line prints."""

    error: str


class Health(Schema):
    """The studio answers."""

    status: str = "ok"


class Share(Schema):
    """A class and its probability."""

    label: str
    probability: float = Field(ge=0, le=1)


class Prediction(Schema):
    """One image's most probable classes, the first of which is the answer."""

    image: str = Field(description="The image as it is called in messages: its place, and its file's name.")
    label: str
    confidence: float = Field(ge=0, le=1)
    known: float | None = Field(
        ge=0, le=1, description="Probability, at even odds, that its class was taught; null if the model cannot tell."
    )
    unknown: bool | None = Field(description="Whether `known` is so low that the answer is: never taught.")
    top: list[Share]


class Predictions(Schema):
    """One prediction for each image, all by the same model."""

    revision: int = Field(description="How many lines the model's log had when it answered.")
    predictions: list[Prediction]
    milliseconds: float


class Neighbour(Schema):
    """A class near to another one, and the cosine between their vectors."""

    label: str
    cosine: float = Field(ge=-1.001, le=1.001)


class Count(Schema):
    """A class and how many images of it."""

    label: str
    images: int

    @model_validator(mode="before")
    @classmethod
    def _of_pair(cls, value: Any) -> Any:
        return {"label": value[0], "images": value[1]} if isinstance(value, tuple) else value


class Session(Schema):
    """Who taught what, when, from how many images."""

    number: int
    when: str
    who: str
    note: str
    classes: list[Count] = Field(validation_alias="images")


class Learnt(Schema):
    """A class was taught, and the model with it is on disk."""

    revision: int
    session: Session
    label: str
    images: int = Field(description="Different ones; a photo that was sent twice counts once.")
    recognised: int = Field(description="How many of the images the new model takes for this class.")
    confused_with: list[Neighbour] = Field(description="The nearest other classes, the nearest first.")
    milliseconds: float


class Evidence(Schema):
    """One concept's share of the difference between the class and the runner-up."""

    concept: int
    contribution: float
    coefficient: float = Field(ge=0)
    colour: str | None = Field(description="Of its heat map, as #rrggbb.")
    heat: str | None = Field(description="Where it lies in the framed image: a transparent PNG as a data URL.")


class Why(Schema):
    """Why this class and not the runner-up: contributions of all concepts, rest and offset sum to the difference."""

    revision: int
    label: str
    runner_up: str | None
    difference: float = Field(description="Score of the class minus score of the runner-up.")
    evidence: list[Evidence] = Field(description="For the class, strongest first, then against it.")
    others: float = Field(description="What all other concepts add.")
    rest: float = Field(description="What no concept explains.")
    offset: float = Field(description="What putting classes of many and of few images on one scale adds.")
    framed: str = Field(description="The square of the image that the model saw: a PNG as a data URL.")
    milliseconds: float


class Undo(Schema):
    """Which session is meant; if it is no longer the last one, nothing is undone."""

    session: int | None = None
    by: str | None = Field(default=None, max_length=200)


class Undone(Schema):
    """A session was taken back."""

    revision: int
    session: Session


class Forgotten(Schema):
    """A class was erased."""

    revision: int
    label: str


class Known(Schema):
    """A class that the model knows."""

    label: str
    images: int
    session: int = Field(description="That taught it first; 0 is the base session.")
    nearest: Neighbour | None


class Line(Schema):
    """A line of the log, which only grows."""

    what: str
    when: str
    who: str
    session: int | None
    note: str
    classes: list[Count] = Field(validation_alias="images")


class Allowed(Schema):
    """Limits of one request."""

    request_bytes: int
    image_bytes: int
    images: int
    name_length: int


class Card(Schema):
    """The model card: what the model is, what it knows, and how it came to know it."""

    name: str
    masil: str
    revision: int
    backbone: str
    image_side: int
    features: int
    embedding: str
    concepts: int
    temperature: float
    memory_bytes: int
    bytes_per_class: int
    classes: list[Known]
    sessions: list[Session]
    log: list[Line]
    limits: Allowed
