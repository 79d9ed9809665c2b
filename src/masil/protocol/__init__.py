"""Which classes and shots come when, and what counts as right."""

from masil.protocol.custom import cut_protocol, read_protocol
from masil.protocol.protocol import PROTOCOLS, Protocol
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
from masil.protocol.validation import held_out, pseudo_novel

__all__ = [
    "PROTOCOLS",
    "Protocol",
    "Scores",
    "Session",
    "SessionScore",
    "Spread",
    "confusion_by_session",
    "cut_protocol",
    "generalised_accuracy",
    "harmonic_mean",
    "held_out",
    "once",
    "pseudo_novel",
    "read_protocol",
    "score_session",
    "sessions",
    "spread",
    "summarise",
]
