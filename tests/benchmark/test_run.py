import errno
import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from masil.benchmark import DIVERGED, read_run, run
from masil.benchmark import write_run as write
from masil.errors import InputError, MasilError, StorageError
from masil.methods import DCosine

GATHER = importlib.import_module("masil.benchmark.gather")


class Stops(DCosine):
    """Nearest mean, until someone presses Ctrl-C in draw `at`."""

    played = fitted = 0
    at = 99

    def fit(self, base, task):
        type(self).fitted += 1
        super().fit(base, task)

    def learn(self, shots):
        type(self).played += int(shots.labels.min()) == 4  # the first session of a draw
        if type(self).played > type(self).at:
            raise KeyboardInterrupt
        super().learn(shots)


class Fails(DCosine):
    """Fails in the first session, as somebody's method may."""

    def learn(self, shots):
        raise RuntimeError("the moon is full")


class Unmade(DCosine):
    def __init__(self):
        raise RuntimeError("no moon at all")


def test_a_method_that_fails_leaves_a_sentence_and_its_traceback(setting, tmp_path):
    trace = tmp_path / "failures" / "Fails-draw-0.txt"
    with pytest.raises(MasilError, match="'Fails' failed on draw 0: RuntimeError: the moon is full") as said:
        run(setting, Fails, 1, out=tmp_path)
    assert str(said.value).endswith(f"(traceback: {trace})")
    assert 'raise RuntimeError("the moon is full")' in trace.read_text()
    with pytest.raises(MasilError, match=r"the moon is full \(traceback: with --out or --debug\)") as said:
        run(setting, Fails, 1)
    assert isinstance(said.value.__cause__, RuntimeError)
    with pytest.raises(MasilError, match="'Unmade' cannot be made: RuntimeError: no moon at all"):
        run(setting, Unmade, 1)


@pytest.fixture
def stops():
    """Counters of the test's own."""
    return type("Stops", (Stops,), {"__module__": __name__})


def figures(record):
    return [[(row.accuracy, row.base, row.novel, row.harmonic_mean) for row in draw.sessions] for draw in record.draws]


def test_a_run_says_everything_needed_to_do_it_again(setting):
    record = run(setting, "d-cosine", [2, 5], seed=7)
    assert (record.method, record.protocol, record.dataset) == ("d-cosine", "small", "squares")
    assert (record.way, record.shot, record.base_classes, record.seed) == (2, 3, 4, 7)
    assert [draw.draw for draw in record.draws] == [2, 5]
    assert [row.classes for row in record.draws[0].sessions] == [4, 6, 8]
    assert record.draws[0].average == pytest.approx(sum(row.accuracy for row in record.draws[0].sessions) / 3)
    stamp = record.draws[0].stamp
    assert set(stamp.versions) == {"masil", "python", "torch", "numpy"}
    assert stamp.machine["device"] == "cpu"
    assert stamp.machine["cores"] >= 1
    assert stamp.model_bytes == record.model_bytes == 8 * 48 * 4  # eight class means
    assert stamp.peak_bytes > 10_000_000
    assert stamp.command
    assert [len(checksum) for checksum in (record.data_checksum, record.weights_checksum, record.code)] == [64] * 3
    assert record.extras["cosines"]["test"][2][0] > record.extras["cosines"]["test"][2][1]
    shots = [draw.shots for draw in record.draws]
    assert [len(checksum) for checksum in shots] == [64, 64]
    assert shots[0] != shots[1]
    assert [draw.shots for draw in run(setting, "teen", [5, 2]).draws] == shots  # of every method, in the draws' order


def test_nothing_is_written_unless_it_is_asked_for(setting, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run(setting, "d-cosine", 1)
    assert list((tmp_path / "here").iterdir()) == []


def test_draws_share_one_base_session(setting, stops):
    together = run(setting, stops, 3, seed=5)
    assert (stops.played, stops.fitted) == (3, 1)
    alone = [run(setting, "d-cosine", [draw], seed=5) for draw in range(3)]
    assert [draw.sessions[-1].accuracy for draw in together.draws] == [r.draws[0].sessions[-1].accuracy for r in alone]
    assert len({draw.sessions[0].learn_seconds for draw in together.draws}) == 1
    run(replace(setting, views=2), stops, 1, seed=5)
    assert stops.fitted == 2


def test_without_draws_the_standard_shots_are_played_where_there_are_some(setting, with_standard_shots):
    assert [draw.draw for draw in run(setting, "d-cosine").draws] == [0]
    assert [draw.draw for draw in run(with_standard_shots, "d-cosine").draws] == [None]


@pytest.mark.parametrize(
    ("draws", "sentence"),
    [
        (0, "Draws are counted from 0 to 2⁶³ − 1 and there must be one at least"),
        ([], "Draws are counted from 0"),
        ([-1], "Draws are counted from 0"),
        ([None], "There are no standard shots of '.*'; name draws: 0, 1, …"),
        ([0, None], "no standard shots"),
    ],
)
def test_impossible_draws_are_refused(setting, draws, sentence):
    with pytest.raises(InputError, match=sentence):
        run(setting, "d-cosine", draws)


def test_ctrl_c_keeps_finished_draws_and_the_same_call_plays_the_rest(setting, stops, tmp_path, monkeypatch):
    whole, views = run(setting, stops, 3), []
    monkeypatch.setattr(
        GATHER, "write_run", lambda record, path: views.append(len(record.draws)) or write(record, path)
    )
    stops.played, stops.at = 0, 2
    with pytest.raises(KeyboardInterrupt):
        run(setting, stops, 3, out=tmp_path)
    assert [draw.draw for draw in read_run(tmp_path / "Stops").draws] == [0, 1]
    stops.played, stops.at = 0, 99
    resumed = run(setting, stops, 3, out=tmp_path)
    assert stops.played == 1
    assert figures(resumed) == figures(whole)
    assert read_run(tmp_path / "Stops") == resumed
    assert views == [1, 2, 3]  # each once
    assert run(setting, stops, 3, out=tmp_path) == resumed
    assert stops.played == 1


def test_a_folder_with_another_setting_is_left_alone(setting, tmp_path):
    run(setting, "d-cosine", 1, out=tmp_path)
    before = (tmp_path / "d-cosine" / "run.json").read_bytes()
    other = replace(setting, protocol=replace(setting.protocol, name="large", shot=2))
    with pytest.raises(StorageError, match="protocol 'small' there, 'large' here; shot 3 there, 2 here"):
        run(other, "d-cosine", 1, out=tmp_path)
    with pytest.raises(StorageError, match="seed 0 there, 4 here"):
        run(setting, "d-cosine", 1, out=tmp_path, seed=4)
    relabelled = replace(setting.dataset, train=setting.dataset.train.relabel(setting.dataset.train.labels.flip(0)))
    with pytest.raises(StorageError, match="other images or labels there than here"):
        run(replace(setting, dataset=relabelled), "d-cosine", 1, out=tmp_path)
    assert (tmp_path / "d-cosine" / "run.json").read_bytes() == before


def test_a_full_disk_costs_the_draw_under_way_and_no_other(setting, stops, tmp_path, monkeypatch):
    real = Path.write_bytes

    def full(self, content):
        if "draw-1" in self.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, content)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(StorageError, match="The disk is full: .*draw-1-.*json was not written"):
            run(setting, stops, 2, out=tmp_path)
    assert [draw.draw for draw in read_run(tmp_path / "Stops").draws] == [0]
    assert not list(tmp_path.rglob("*.part"))
    run(setting, stops, 2, out=tmp_path)
    assert stops.played == 3
    assert [draw.draw for draw in read_run(tmp_path / "Stops").draws] == [0, 1]


def test_what_diverged_is_noted_for_every_draw(setting, monkeypatch):
    lowered = iter([{"1": 0.5}, {}])
    monkeypatch.setattr(DCosine, "remarks", lambda self: {DIVERGED: found} if (found := next(lowered)) else {})
    assert run(setting, "d-cosine", 2).extras["diverged_by_draw"] == [{"1": 0.5}, {}]


def test_what_a_method_remarks_is_in_the_record(setting, tmp_path):
    record = run(setting, "masil", 2, out=tmp_path)
    cosines = record.extras["concept_cosine"]
    assert 0 <= cosines["plain"] <= 1
    assert cosines["centred"] < 0
    assert read_run(tmp_path / "masil").extras["concept_cosine"] == cosines
    assert run(setting, "masil", 2, out=tmp_path).extras["concept_cosine"] == cosines
