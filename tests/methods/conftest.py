from collections.abc import Callable

import pytest

from masil.methods import Task
from masil.protocol import Protocol

MakeTask = Callable[..., Task]


@pytest.fixture
def task() -> MakeTask:
    """Make a task of `base` classes and one session of `new` ones."""

    def make(base: int = 4, new: int = 2, **told: object) -> Task:
        return Task(Protocol("rows", "rows", base_classes=base, sessions=1, way=new, shot=5), **told)  # type: ignore[arg-type]

    return make
