"""Which classes and shots come when, and what counts as right."""

from masil.protocol.protocol import PROTOCOLS, Protocol, cut_protocol, read_protocol
from masil.protocol.scores import (
    Scores,
    SessionScore,
    Spread,
    confusion_by_session,
    generalised_accuracy,
    harmonic_mean,
    score_session,
    spread,
    summarise,
)
from masil.protocol.sessions import Session, once, sessions
from masil.protocol.splits import (
    Play,
    class_folds,
    divide,
    first_of_each,
    held_out,
    hold_out,
    hold_out_count,
    place_in_class,
    pseudo_novel,
    some_of_each,
)
