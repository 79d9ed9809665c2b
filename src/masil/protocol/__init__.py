"""Which classes and shots come when, and what counts as right."""

from masil.protocol.protocol import PROTOCOLS, Protocol, cut_protocol, read_protocol
from masil.protocol.scores import (
    Scores,
    SessionScore,
    Spread,
    confusion_by_session,
    generalised_accuracy,
    harmonic_mean,
    mean_and_interval,
    score_session,
    summarise,
)
from masil.protocol.sessions import Session, sessions
from masil.protocol.splits import (
    Play,
    by_class,
    class_folds,
    divide,
    first_of_each,
    held_out,
    hold_out,
    hold_out_count,
    place_in_class,
    pseudo_novel,
    rehearse,
    some_of_each,
)
