"""A method judged by a protocol: one run, a grid of runs, and the records they leave."""

from masil.benchmark.bench import bench
from masil.benchmark.play import Lesson, Played, play
from masil.benchmark.record import DrawRecord, RunRecord, SessionRow, mean_sessions, summary
from masil.benchmark.run import own_recipe, run
from masil.benchmark.run_file import read_run, run_from_json, run_to_json, write_run
from masil.benchmark.setting import Setting, prepare

__all__ = [
    "DrawRecord",
    "Lesson",
    "Played",
    "RunRecord",
    "SessionRow",
    "Setting",
    "bench",
    "mean_sessions",
    "own_recipe",
    "play",
    "prepare",
    "read_run",
    "run",
    "run_from_json",
    "run_to_json",
    "summary",
    "write_run",
]
