"""The memory is a running mean, takes nothing away, and says what it costs."""

import torch

from masil.learner.memory import Lesson, Memory, account


def lesson(number, labels, counts, seed, d=5):
    generator = torch.Generator().manual_seed(seed)
    means, induced, vectors = (torch.randn(len(labels), d, generator=generator) for _ in range(3))
    expected = torch.rand(len(labels), generator=generator)
    return Lesson(number, "then", "me", "", tuple(labels), torch.tensor(counts), means, induced, vectors, expected)


def test_new_classes_are_appended_and_known_ones_averaged():
    first, second = lesson(0, ["a", "b"], [3, 4], 0), lesson(1, ["b", "c"], [2, 1], 1)
    memory = Memory.of([first, second])
    assert memory.labels == ("a", "b", "c")
    assert memory.counts.tolist() == [3, 6, 1]
    assert memory.base.tolist() == [True, True, False]
    torch.testing.assert_close(memory.means[1], (4 * first.means[1] + 2 * second.means[0]) / 6)
    torch.testing.assert_close(memory.induced[1], (4 * first.induced[1] + 2 * second.induced[0]) / 6)
    assert torch.equal(memory.vectors, torch.stack([first.vectors[0], second.vectors[0], second.vectors[1]]))
    assert torch.equal(memory.means[2], second.means[1])
    torch.testing.assert_close(memory.expected[1], (4 * first.expected[1] + 2 * second.expected[0]) / 6)
    assert memory.expected[2] == second.expected[1]


def test_all_sessions_at_once_are_one_after_the_other():
    lessons = [
        lesson(0, ["a", "b"], [3, 4], 0, d=37),
        lesson(1, ["b", "c", "a"], [2, 1, 7], 1, d=37),
        lesson(2, ["d"], [5], 2, d=37),
        lesson(3, ["c", "e", "b"], [2, 2, 1], 3, d=37),
    ]
    whole = Memory.of(lessons)
    stepwise = Memory.of(lessons[:1])
    for each in lessons[1:]:
        stepwise = stepwise.after(each)
    assert whole.labels == stepwise.labels == ("a", "b", "c", "d", "e")
    for name in ("counts", "base"):
        assert torch.equal(getattr(whole, name), getattr(stepwise, name))
    eps = torch.finfo(torch.float32).eps  # a few operations for each lesson, on numbers of size one
    for name in ("means", "induced", "vectors", "expected"):
        torch.testing.assert_close(getattr(whole, name), getattr(stepwise, name), atol=16 * eps, rtol=0)


def test_lessons_are_left_as_they_were():
    first, second = lesson(0, ["a", "b"], [3, 4], 0), lesson(1, ["b", "a"], [2, 1], 1)
    kept = [x.clone() for x in (first.means, first.counts, first.vectors)]
    Memory.of([first, second])
    assert all(torch.equal(a, b) for a, b in zip(kept, (first.means, first.counts, first.vectors), strict=True))


def test_the_bytes_are_counted():
    memory = Memory.of([lesson(0, ["a", "b"], [3, 4], 0, d=100)])
    assert memory.bytes_per_class == 3 * 4 * 100 + 4 + 8 + 1
    assert memory.nbytes == 2 * memory.bytes_per_class


def test_a_lesson_without_a_class():
    whole = lesson(1, ["a", "b", "c"], [1, 2, 3], 0)
    less = whole.without("b")
    assert less.record.images == (("a", 1), ("c", 3))
    assert torch.equal(less.means, whole.means[[0, 2]])
    assert torch.equal(less.expected, whole.expected[[0, 2]])
    assert whole.record.classes == ("a", "b", "c")


def test_a_machine_without_accounts(monkeypatch):
    assert account("Ada") == "Ada"
    monkeypatch.setattr("getpass.getuser", lambda: (_ for _ in ()).throw(KeyError("uid")))
    assert account(None) == "unknown"
