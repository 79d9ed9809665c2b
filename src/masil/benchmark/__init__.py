"""A method judged by a protocol."""

from masil.benchmark.play import Played, play

__all__ = ["Played", "play"]
