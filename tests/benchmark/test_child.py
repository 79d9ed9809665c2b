import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

from masil.benchmark.cluster import TaskFailedError, children, pack
from masil.errors import InputError


def ask(function, *arguments, **parts):
    return children().run(pack(function, *arguments), parts)


@pytest.fixture(scope="module", autouse=True)
def _ended():
    yield
    children().end()


# Functions made here are packed by value, as those of a script or a notebook are.
def made(name):
    def pid(*_, **__):
        return os.getpid()

    def total(start, values):
        sys.stdout.write("what a task prints is no answer\n")
        return start + float(values.sum())

    def leave():
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(3)

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    def refuse():
        raise InputError("There are no images.")

    def fail():
        raise ZeroDivisionError("by nought")

    def lock():
        return threading.Lock()

    return locals()[name]


def test_a_child_is_another_process_and_is_used_again():
    first = ask(made("pid"))
    assert first != os.getpid()
    assert ask(made("pid")) == first


def test_arguments_go_there_and_results_come_back():
    assert ask(made("total"), 1.5, values=np.arange(4.0)) == 7.5


def test_an_error_is_told_and_the_child_goes_on():
    before = ask(made("pid"))
    with pytest.raises(TaskFailedError, match=r"^There are no images\.$"):
        ask(made("refuse"))
    with pytest.raises(TaskFailedError, match=r"^ZeroDivisionError: by nought$"):
        ask(made("fail"))
    with pytest.raises(TaskFailedError, match=r"^TypeError: cannot pickle"):
        ask(made("lock"))
    assert ask(made("pid")) == before


def test_a_death_is_told_and_the_next_task_has_a_new_child():
    before = ask(made("pid"))
    with pytest.raises(TaskFailedError, match=r"^its process ended with code 3: out of luck$"):
        ask(made("leave"))
    with pytest.raises(TaskFailedError, match=r"^its process was killed by SIGKILL \(was memory short\?\)$"):
        ask(made("kill"))
    assert ask(made("pid")) != before


def test_children_end_when_they_are_told_to():
    pid = ask(made("pid"))
    children().end()
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail(f"Process {pid} is still there.")
