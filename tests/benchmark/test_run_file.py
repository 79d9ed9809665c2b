import json
import statistics
from dataclasses import replace

import pytest

from masil.benchmark import mean_sessions, paired_differences, read_run, run, summary, write_run
from masil.benchmark.run_file import write_sealed
from masil.errors import StorageError


@pytest.fixture
def record(setting):
    return run(setting, "d-cosine", 3)


def as_json(record, folder):
    """The content of a record's file, without the checksum that lets nobody change it."""
    value = json.loads(write_run(record, folder / "unchanged").read_text())
    del value["checksum"]
    return value


def sealed(file, value):
    """Write content as masil itself would."""
    write_sealed(file, value)
    return file


def test_a_record_comes_back_from_its_file(record, tmp_path):
    rich = replace(record, extras={"history": [{"epoch": 1}]})
    file = write_run(rich, tmp_path)
    assert file == tmp_path / "run.json"
    assert read_run(write_run(record, tmp_path / "other.json")) == record
    read = read_run(file)
    assert read == read_run(tmp_path) == rich
    assert read.source == file
    assert read.over_draws("average").mean == pytest.approx(statistics.fmean(draw.average for draw in record.draws))
    assert read.over_draws("novel", 0) is None  # the base session has no novel class


def test_a_paired_difference_is_over_the_draws_that_both_have(record):
    def shifted(by, **changes):
        moved = [
            replace(
                draw,
                sessions=tuple(replace(row, accuracy=row.accuracy + by * (1 + draw.draw)) for row in draw.sessions),
            )
            for draw in record.draws
        ]
        return replace(record, draws=tuple(moved), **changes)

    assert paired_differences(shifted(1.0), replace(record, draws=record.draws[1:])) == pytest.approx((2.0, 3.0))
    assert paired_differences(shifted(1.0, data_checksum="other"), record) == ()


def test_a_field_of_older_files_is_passed_over(record, tmp_path):
    old = {**as_json(record, tmp_path), "mode": "strict"}
    old["draws"][0]["balanced"] = []
    assert read_run(sealed(tmp_path / "run.json", old)) == record
    del old["draws"][0]["shots"]  # which older files do not name
    sealed(tmp_path / "run.json", old)
    assert [bool(draw.shots) for draw in read_run(tmp_path).draws] == [False, True, True]


def test_a_file_of_version_1_is_read_and_known_to_be_untraced(record, tmp_path):
    new = as_json(record, tmp_path)
    stamp = new["draws"][0]["stamp"]
    old = {key: value for key, value in new.items() if key not in ("given", "weights_checksum", "code", "asked")}
    old |= {key: stamp[key] for key in ("command", "versions", "machine", "started")}
    old |= {"version": 1, "commit": "1a1d552-dirty", "seconds": 6.0, "memory": {"model_bytes": 7, "peak_bytes": 8}}
    old["draws"] = [{key: value for key, value in draw.items() if key != "stamp"} for draw in new["draws"]]
    (tmp_path / "run.json").write_text(json.dumps(old))
    read = read_run(tmp_path)
    assert [draw.sessions for draw in read.draws] == [draw.sessions for draw in record.draws]
    assert (read.code, read.parameters, read.stamped("commit"), read.stamped("clean")) == ("", {}, ["1a1d552"], [False])
    assert read.seconds == pytest.approx(6.0)
    assert read.model_bytes == 7


def test_a_record_that_was_changed_by_hand_is_refused(record, tmp_path):
    file = write_run(record, tmp_path)
    file.write_text(file.read_text().replace('"accuracy": ', '"accuracy": 1', 1))
    with pytest.raises(StorageError, match="was changed after it was written: its checksum does not fit"):
        read_run(tmp_path)
    file.write_text(json.dumps(as_json(record, tmp_path)))
    with pytest.raises(StorageError, match="its checksum is missing"):
        read_run(tmp_path)


def test_means_stand_where_readers_look_first(record, tmp_path):
    value = as_json(record, tmp_path)
    assert list(value)[:7] == ["format", "version", "method", "protocol", "sessions", "summary", "draws"]
    for number, row in enumerate(value["sessions"]):
        own = [draw.sessions[number].accuracy for draw in record.draws]
        assert row["accuracy"] == pytest.approx(statistics.fmean(own))
        assert row["accuracy_std"] == pytest.approx(statistics.stdev(own))
    assert value["sessions"][0]["novel"] is None
    assert "novel_std" not in value["sessions"][0]
    assert value["summary"]["draws"] == 3
    assert value["summary"]["last"] == value["sessions"][-1]["accuracy"]
    assert value["summary"]["harmonic_mean"] == value["sessions"][-1]["harmonic_mean"]


def test_one_draw_has_no_deviation(record):
    for values in (*mean_sessions(record.draws[:1]), summary(record.draws[:1])):
        assert not [name for name in values if name.endswith("_std")]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[1, 2]", "is not a run of masil: its format should be 'masil-run' but is 'list'"),
        ('{"format": "masil-cell", "version": 1}', "is not a run of masil: .* but is 'masil-cell'"),
        ("{}", "but is 'no format'"),
        ('{"format": "masil-run", "version": 3}', "version 3 .* reads versions up to 2; a newer masil wrote it"),
        ('{"format": "masil-run"}', "damaged or was changed by hand: 'version' is missing"),
        ('{"format": "masil-run", "version": 1, "draws": []}', "damaged or was changed by hand"),
        ('{"format": "masil-run", "version": 1, "draws": [7]}', "damaged or was changed by hand"),
        ('{"format": "masil-run", "vers', "cannot be read as JSON"),
    ],
)
def test_what_is_no_run_is_said_to_be_none(tmp_path, content, sentence):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(StorageError, match=sentence):
        read_run(tmp_path)


def test_a_missing_file_or_key_is_named(record, tmp_path):
    with pytest.raises(StorageError, match="There is no file"):
        read_run(tmp_path)
    value = as_json(record, tmp_path)
    del value["draws"][1]["sessions"][0]["base"]
    with pytest.raises(StorageError, match="'base' is missing"):
        read_run(sealed(tmp_path / "other.json", value))
