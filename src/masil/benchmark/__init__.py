"""A method judged by a protocol: one run, a grid of runs, and the records they leave."""

from masil.benchmark.base_sessions import BaseSession, side_by_side, train_all
from masil.benchmark.cell import Entry
from masil.benchmark.gather import mean_cosines, parameters_now
from masil.benchmark.grid import Grid, bench, run
from masil.benchmark.held_out import with_held_out
from masil.benchmark.plan import left_out, own_recipe
from masil.benchmark.play import SessionData, SessionResult, play
from masil.benchmark.provenance import Stamp
from masil.benchmark.record import (
    DIVERGED,
    DrawRecord,
    RunRecord,
    SessionRow,
    figure,
    mean_sessions,
    paired_differences,
    summary,
)
from masil.benchmark.reproduce import (
    ALL,
    BUDGETS,
    PARTS,
    Budget,
    estimate_seconds,
    plan_reproduction,
    play_base,
    trained_setting,
    with_weights,
)
from masil.benchmark.run_file import read_run, write_run
from masil.benchmark.setting import Origin, Setting, prepare, with_room
