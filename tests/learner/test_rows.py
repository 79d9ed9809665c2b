"""The rows of classes are running means, take nothing away, and say what they cost."""

import torch

from masil.learner.rows import ROWS, ClassRows, SessionRows, replay, teacher_name


def session(number, labels, counts, seed, d=5):
    generator = torch.Generator().manual_seed(seed)
    means, induced, vectors = (torch.randn(len(labels), d, generator=generator) for _ in range(3))
    own_scores, base = torch.rand(len(labels), generator=generator), torch.full((len(labels),), number == 0)
    rows = ClassRows(tuple(labels), torch.tensor(counts), means, induced, vectors, own_scores, base)
    return SessionRows(number, "then", "me", "", rows)


def test_new_classes_are_appended_and_known_ones_averaged():
    sessions = session(0, ["a", "b"], [3, 4], 0), session(1, ["b", "c"], [2, 1], 1)
    first, second = (each.rows for each in sessions)
    kept = [getattr(first, name).clone() for name in ROWS]
    rows = replay(sessions)
    assert rows.labels == ("a", "b", "c")
    assert rows.counts.tolist() == [3, 6, 1]
    assert rows.base.tolist() == [True, True, False]
    for name in ("means", "induced", "own_scores"):
        old, new = getattr(first, name), getattr(second, name)
        torch.testing.assert_close(getattr(rows, name)[1], (4 * old[1] + 2 * new[0]) / 6)
        assert torch.equal(getattr(rows, name)[2], new[1])
    assert torch.equal(rows.vectors, torch.stack([first.vectors[0], second.vectors[0], second.vectors[1]]))
    assert all(torch.equal(before, getattr(first, name)) for before, name in zip(kept, ROWS, strict=True))


def test_the_bytes_are_counted():
    rows = session(0, ["a", "b"], [3, 4], 0, d=100).rows
    assert rows.bytes_per_class == 3 * 4 * 100 + 4 + 8 + 1
    assert rows.nbytes == 2 * rows.bytes_per_class


def test_a_session_without_a_class():
    whole = session(1, ["a", "b", "c"], [1, 2, 3], 0)
    less = whole.without("b")
    assert less.record.images == (("a", 1), ("c", 3))
    for name in ROWS:
        assert torch.equal(getattr(less.rows, name), getattr(whole.rows, name)[[0, 2]])
    assert whole.record.classes == ("a", "b", "c")


def test_a_machine_without_accounts(monkeypatch):
    assert teacher_name("Ada") == "Ada"
    monkeypatch.setattr("getpass.getuser", lambda: (_ for _ in ()).throw(KeyError("uid")))
    assert teacher_name(None) == "unknown"
