from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from masil.errors import InputError
from masil.training import Recipe
from masil.training.compute import TIMED, WARM, ComputeSettings, ForwardChoice, choose_settings, is_long, share_cores
from masil.training.distributed import World

Make = Callable[..., Recipe]
CPU = torch.device("cpu")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the hardware was asked, which here answers at once: bfloat16."""
    questions: list[str] = []
    answers = {"probe": None, "found_precision": "bfloat16", "set_threads": 1}

    def ask(name: str) -> Callable[..., object]:
        return lambda *_: questions.append(name) or answers[name]  # type: ignore[func-returns-value]

    for name in answers:
        monkeypatch.setattr(f"masil.training.compute.{name}", ask(name))
    return questions


def test_the_hardware_decides(asked: list[str], tiny: Make) -> None:
    engine = choose_settings(CPU, "auto", tiny(), 1000, World())
    assert (engine.device, engine.precision, engine.compile, engine.processes) == ("cpu", "bfloat16", True, 1)
    assert engine.cast == torch.bfloat16


def test_a_short_run_is_not_compiled_and_a_given_precision_is_taken(asked: list[str], tiny: Make) -> None:
    engine = choose_settings(CPU, "float32", tiny(), 6, World())
    assert asked == []
    assert (engine.precision, engine.compile, engine.cast) == ("float32", False, None)


def test_several_processes_do_not_compile(asked: list[str], tiny: Make) -> None:
    assert not choose_settings(CPU, "auto", tiny(), 1000, World(0, 2)).compile
    assert "set_threads" not in asked


def test_a_recipe_may_refuse_the_compiler(asked: list[str], tiny: Make) -> None:
    assert not choose_settings(CPU, "auto", tiny(compile=False), 1000, World()).compile


def test_a_size_that_comes_back_counts_as_one(tiny: Make) -> None:
    recipe = tiny(stages=((2, 8), (1, 16), (2, 8)))
    assert is_long(recipe, 8, 25)
    assert not is_long(recipe, 16, 25)


def test_an_unknown_precision_is_said(tiny: Make) -> None:
    with pytest.raises(InputError, match="no precision called 'bfloat61'; did you mean 'bfloat16'"):
        choose_settings(CPU, "bfloat61", tiny(), 6, World())


def test_what_changed_since_a_checkpoint_is_said() -> None:
    engine = ComputeSettings("cpu", "float32", True, 2, 1, "2.13")
    assert engine.differences(engine.to_json()) == []
    assert engine.differences({**engine.to_json(), "threads": 8}) == ["threads 8 then, 2 now"]


def test_processes_divide_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    fake = SimpleNamespace(get_num_threads=lambda: 8, set_num_threads=given.append)
    monkeypatch.setattr("masil.training.compute.torch", fake)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    share_cores(World(0, 1))
    share_cores(World(0, 2))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    share_cores(World(0, 2))
    assert given == [4]


class Stub:
    """A backbone that says which way it was run."""

    def forward(self, x: torch.Tensor) -> str:
        return "eager"


@pytest.mark.parametrize(("eager", "compiled", "chosen"), [(1.0, 0.5, "compiled"), (0.5, 1.0, "eager")])
def test_real_steps_decide_whether_a_size_runs_compiled(eager: float, compiled: float, chosen: str) -> None:
    choice = ForwardChoice(Stub())  # type: ignore[arg-type]
    choice.compiled = lambda x: "compiled"  # type: ignore[assignment,return-value]
    ran = []
    for step in range(2 * (WARM + TIMED) + 3):
        ran.append(choice.forward(16)(torch.zeros(1)))
        slow = 100.0 if step in (0, WARM + TIMED) else 0.0  # the first of a kind pays for compiling
        choice.note(16, slow + (compiled if ran[-1] == "compiled" else eager))
    assert ran[: 2 * (WARM + TIMED)] == ["eager"] * (WARM + TIMED) + ["compiled"] * (WARM + TIMED)
    assert ran[-3:] == [chosen] * 3
    assert choice.forward(24)(torch.zeros(1)) == "eager"  # another size is tried anew


def test_what_cannot_be_compiled_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no compiler here")

    choice = ForwardChoice(Stub())  # type: ignore[arg-type]
    choice.compiled = fails  # type: ignore[assignment]
    for _ in range(WARM + TIMED):
        choice.note(16, 1.0)
    assert [choice.forward(16)(torch.zeros(1)) for _ in range(2)] == ["eager", "eager"]
    assert "cannot be compiled here (RuntimeError)" in caplog.text
