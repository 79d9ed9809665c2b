"""A method judged by a protocol: one run, a grid of runs, and the records they leave."""

from masil.benchmark.gather import parameters_now
from masil.benchmark.grid import bench, own_recipe, run
from masil.benchmark.play import SessionData, SessionResult, play
from masil.benchmark.provenance import Stamp
from masil.benchmark.record import DrawRecord, RunRecord, SessionRow, mean_sessions, summary
from masil.benchmark.run_file import read_run, run_from_json, run_to_json, write_record, write_run
from masil.benchmark.setting import Setting, prepare
