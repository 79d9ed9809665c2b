"""Choices on a trained backbone are made on others, which the classes that play novel were no part of."""

from dataclasses import replace

import pytest

from masil.benchmark import Entry, Origin, bench, prepare, read_run, with_held_out
from masil.errors import InputError
from masil.methods import Task
from masil.methods.tuning import rehearsals
from masil.training import Recipe, load_trained

TINY = Recipe(name="tiny", backbone="resnet20", width=0.5, framing=(16, 16), stages=((1, 16),), batch=8, compile=False)
METHODS = ["d-cosine", "d-cosine+balance", "icarl-table"]


@pytest.fixture
def trained(patterns, tmp_path):
    shape, dataset = patterns
    return prepare(shape, Origin(recipe=TINY, folder=tmp_path / "base"), dataset=dataset, device="cpu")


def test_each_division_has_a_backbone_that_knows_its_base_classes_alone(trained, tmp_path):
    setting = with_held_out(trained, TINY, tmp_path / "without", jobs=1)
    held_out = setting.held_out
    assert (setting.fingerprint, held_out.recipe) == (trained.fingerprint, "tiny")
    assert len({trained.fingerprint, *held_out.weights}) == 3
    names = [set(load_trained(folder).names) for folder in sorted((tmp_path / "without").iterdir())]
    assert [len(known) for known in names] == [2, 2]
    for rehearsal in held_out.rehearsals:
        protocol = rehearsal.task.protocol
        assert (protocol.base_classes, protocol.sessions, protocol.way, protocol.shot) == (2, 2, 1, 3)
        assert rehearsal.task.adapted
        assert rehearsal.base.labels.unique().tolist() == [0, 1]
        shots = [[session.labels.tolist() for session in draw] for draw in rehearsal.draws]
        assert shots == [[[2] * 3, [3] * 3]] * 5
        assert rehearsal.tests.labels.unique().tolist() == [0, 1, 2, 3]
        assert rehearsal.base.activations.shape[1] == rehearsal.tests.activations.shape[1]


def test_who_chooses_on_activations_is_told_and_no_other(trained, tmp_path):
    setting = with_held_out(trained, TINY, tmp_path / "without", jobs=1)
    told = {}
    for name in METHODS:
        entry = Entry.of(name)
        told[name] = entry.task(setting, entry.make(setting.protocol.dataset), 3).rehearsals
    assert [len(told[name]) for name in METHODS] == [0, 2, 0]
    assert {part.task.seed for part in told["d-cosine+balance"]} == {3}
    base = told["d-cosine+balance"][0].base
    assert next(rehearsals(base, Task(setting.protocol, rehearsals=told["d-cosine+balance"]))).base is base


def test_a_record_says_on_what_choices_were_made_and_is_played_anew_on_other_backbones(trained, tmp_path):
    def played(setting):
        return bench(setting, METHODS[:2], 1, out=tmp_path / "grid", workers=1).runs

    def cells():
        return tuple(len(list((tmp_path / "grid" / "cells").glob(f"{name}-draw-*"))) for name in METHODS[:2])

    setting = with_held_out(trained, TINY, tmp_path / "without", jobs=1)
    assert [run.without for run in played(trained)] == [None, None]
    assert [run.without for run in played(setting)] == [None, "tiny"]
    assert read_run(tmp_path / "grid" / "d-cosine+balance").without == "tiny"
    assert cells() == (1, 2)  # what chooses nothing is not played again
    other = replace(setting, held_out=replace(setting.held_out, weights=("0", "1")))
    played(other)
    assert cells() == (1, 3)


def test_a_frozen_backbone_needs_none(setting, tmp_path):
    with pytest.raises(InputError, match="'resnet20' was trained on none and needs no others"):
        with_held_out(setting, TINY, tmp_path)
