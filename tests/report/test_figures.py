import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.errors import InputError
from masil.report import (
    Curve,
    Point,
    accuracy_by_session,
    accuracy_by_time,
    base_and_novel,
    collapse_by_epoch,
    confusion,
    cosines_by_session,
    inline_svg,
    look,
    pictures,
    save,
)

FALLING = Curve("a $ b", [[80.0, 70.0, 60.0], [80.0, 72.0, 62.0]])
NAMES = ("nc1", "nc1_ratio", "equinorm_means", "equinorm_vectors", "equiangular_means", "equiangular_vectors")
NAMES += ("simplex_means", "simplex_vectors", "nc3", "nc4")


def test_a_line_a_run_and_a_band_where_there_are_draws():
    figure = accuracy_by_session([FALLING, Curve("b", [[80.0, 60.0, 50.0]]), Curve("c", [[1, 2, 3]], "published")])
    axis = figure.axes[0]
    assert len(axis.lines) == 3
    assert len(axis.collections) == 1
    assert axis.lines[0].get_ydata().tolist() == [80.0, 71.0, 61.0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a $ b", "b", "c"]


@given(st.permutations([30.0, 40.0, 50.0, 60.0]))
@settings(max_examples=5)
def test_the_legend_reads_in_the_order_in_which_lines_end(ends):
    figure = accuracy_by_session([Curve(f"{end}", [[80.0, end]]) for end in ends])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["60.0", "50.0", "40.0", "30.0"]


def test_no_two_lines_look_alike():
    looks = [look(place) for place in range(24)]
    assert len({(style["color"], style["marker"], str(style["linestyle"])) for style in looks}) == 24
    assert len({(style["marker"], str(style["linestyle"])) for style in looks[:18]}) == 18  # in grey print too


def test_base_novel_and_harmonic_mean_are_panels_of_one_scale():
    novel = Curve("a", [[None, 30.0, 20.0]])
    figure = base_and_novel({"base": [FALLING], "novel": [novel], "harmonic mean": [novel]})
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["base", "novel", "harmonic mean"]
    assert np.isnan(figure.axes[1].lines[0].get_ydata()[0])
    assert len({axis.get_ylim() for axis in figure.axes}) == 1


def test_a_point_a_run():
    figure = accuracy_by_time([Point("a", 0.0, 50.0), Point("b", 20.0, 55.0, 0.4)])
    assert len(figure.axes[0].lines) == 2
    assert figure.axes[0].get_xscale() == "log"


def test_cosines_have_train_and_test_own_and_other():
    cosines = {"train": [[0.9, -0.1], [0.8, 0.0]], "test": [[0.7, 0.1], [0.6, 0.2]]}
    figure = cosines_by_session({"a": cosines, "b": cosines}, [0, 3], title="CIFAR-100, budget leg")
    assert figure.get_suptitle() == "CIFAR-100, budget leg"
    assert [len(axis.lines) for axis in figure.axes] == [2, 2, 2, 2]
    assert list(figure.axes[0].lines[0].get_ydata()) == [-0.1, 0.0]
    assert list(figure.axes[3].lines[0].get_ydata()) == [0.7, 0.6]
    assert figure.axes[0].lines[1].get_color() == look(3)["color"]


def test_collapse_takes_the_rows_of_a_history_as_csv_gives_them():
    rows = [{"epoch": "1", **dict.fromkeys(NAMES, "")}, {"epoch": "2", **dict.fromkeys(NAMES, "0.5")}]
    figure = collapse_by_epoch(rows)
    assert [len(axis.lines) for axis in figure.axes] == [2, 2, 2, 2, 1, 1]
    assert list(figure.axes[0].lines[0].get_xdata()) == [2.0]
    with pytest.raises(InputError, match="history has no column nc1"):
        collapse_by_epoch([{"epoch": 1}])


def test_confusion_is_in_per_cent_of_its_rows():
    figure = confusion([[8, 2], [1, 3]])
    assert [text.get_text() for text in figure.axes[0].texts] == ["80", "20", "25", "75"]
    with pytest.raises(InputError, match=r"is square, but this one is \[2, 3\]"):
        confusion([[1, 2, 3], [1, 2, 3]])


def test_a_saved_figure_has_no_date_and_is_the_same_every_time(tmp_path):
    for kind in ("svg", "pdf", "png"):
        for name in ("one", "two"):
            save(accuracy_by_session([FALLING]), tmp_path / f"{name}.{kind}")
        one = (tmp_path / f"one.{kind}").read_bytes()
        assert one == (tmp_path / f"two.{kind}").read_bytes()
        assert b"CreationDate" not in one
        assert b"dc:date" not in one


def test_an_inline_svg_has_ids_of_its_own_and_the_pages_colours():
    svg = inline_svg(accuracy_by_session([FALLING]), "first", 'words & "more"')
    assert svg.startswith('<svg role="img" aria-label="words &amp; &quot;more&quot;"')
    assert "http" not in svg
    assert "currentColor" in svg
    assert "#1b1b1b" not in svg
    assert 'id="first-figure_1"' in svg
    assert "a $ b" in svg


def test_the_users_matplotlib_settings_are_left_alone():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    accuracy_by_session([FALLING])
    assert dict(mpl.rcParams) == before


def test_runs_bring_the_figures_their_data_allow(record):
    alone = [picture.name for picture in pictures([record()])]
    stem = "cifar100-fast-standard-shots"
    assert alone == [f"{stem}-accuracy", f"{stem}-base-novel", f"{stem}-masil-this-package-confusion"]
    history = [{"epoch": 1, **dict.fromkeys(NAMES, 0.5)}]
    cosines = {"train": [[0.9, 0.1]], "test": [[0.9, 0.1]]}
    rich = record(extras={"history": history, "cosines": cosines})
    first, _, *others = pictures([record("teen"), rich])
    kinds = ["time", "cosines", "masil-this-package-confusion", "masil-this-package-collapse"]
    assert [picture.name for picture in others] == [f"{stem}-{kind}" for kind in kinds]
    labels = [line.get_label() for line in first.figure.axes[0].lines]
    assert labels == ["MASIL (this package)", "TEEN", "NC-FSCIL (published)", "MASIL (published)"]
    assert "MASIL (this package): from 80.0 to 55.0 per cent." in first.words


def test_a_setting_has_figures_of_its_own_and_a_run_a_line_of_its_own(record):
    runs = [record(), record(backbone="other", recipe=None), record(lasts=(50.0, 51.0)), record(lasts=(50.0, 52.0))]
    drawn = [picture for picture in pictures(runs) if picture.name.endswith("-accuracy")]
    stems = ["cifar100-other-standard-shots", "cifar100-fast-2-draws", "cifar100-fast-standard-shots"]
    assert [picture.name.removesuffix("-accuracy") for picture in drawn] == stems
    labels = [line.get_label() for line in drawn[1].figure.axes[0].lines]
    assert len(set(labels)) == len(labels) == 4


def test_many_runs_leave_room_for_the_axes(record):
    runs = [record(f"method {number}", (40.0 + number,)) for number in range(24)]
    for picture in pictures(runs, ours="method 3")[:3]:
        figure = picture.figure
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert {"method 3", "method 23", "15 others"} <= set(labels)
        assert len(labels) <= 12
        figure.draw_without_rendering()
        boxes = [axis.get_window_extent() for axis in figure.axes]
        assert not any(box.overlaps(figure.legends[0].get_window_extent()) for box in boxes)
        assert sum(box.width for box in boxes) > 0.5 * figure.bbox.width


def test_where_matplotlib_is_missing_a_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"Figures are an extra of masil; .* pip install -e '.\[report\]'"):
        accuracy_by_session([FALLING])
