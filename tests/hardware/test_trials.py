"""What a trial tries: wrong numbers are found out, and each stage is begun before it is answered."""

import pytest
import torch

from masil.hardware import trials
from masil.hardware.decide import START
from masil.hardware.trials import WrongNumbersError

CPU = torch.device("cpu")


@pytest.fixture
def said():
    """Give a function that runs a trial in this process and gives what it says."""

    def run(threads=None):
        answers, before = [], torch.get_num_threads()
        torch.set_num_threads(threads or before)
        try:
            trials.main("cpu", answers.append)
        finally:
            torch.set_num_threads(before)
        return answers

    return run


@pytest.fixture
def quick(monkeypatch):
    """Let the work take no time and the machine be idle, and give a function that changes this."""

    def patch(load=0.0, cores=None, **work):
        monkeypatch.setattr("masil.hardware.machine.load", lambda: load)
        if cores:
            monkeypatch.setattr("masil.hardware.machine.usable_cores", lambda: cores)
        for name, function in work.items():
            monkeypatch.setattr(trials, name, function)

    patch(
        matrix_product=lambda device, dtype: 2.0, convolution=lambda device, dtype: 3.0,
        training_step=lambda device, dtype: (lambda: None, 16), best_seconds=lambda work, device: 0.5,
    )  # fmt: skip
    return patch


def test_each_stage_is_begun_before_it_is_answered_and_the_deadly_ones_come_last(said, quick):
    answers = said()
    assert answers[0].items() >= {"stage": START, "torch": torch.__version__}.items()
    assert answers[-1] == {"done": True}
    stages = [f"float32 {name}" for name in ("matrix product", "convolution", "training")]
    stages = ["threads", *stages, *(stage.replace("float32", "bfloat16") for stage in stages)]
    assert [answer["begin"] for answer in answers[1:-1:2]] == [answer["stage"] for answer in answers[2:-1:2]] == stages
    assert answers[2]["fastest"] >= 1
    assert answers[4]["GFLOP/s"] == 2.0
    assert answers[8]["images/s"] == 32.0


def test_a_stage_that_raises_says_so_in_a_line_and_the_next_one_follows(said, quick):
    def wrong(device, dtype):
        raise WrongNumbersError("wrong numbers: y\nand more")

    quick(matrix_product=wrong)
    answers = said()
    assert answers[4] == {"stage": "float32 matrix product", "error": "WrongNumbersError: wrong numbers: y"}
    assert answers[6]["stage"] == "float32 convolution"


@pytest.mark.parametrize(("seconds", "fastest"), [(float, 2), (lambda threads: 1 / threads, 64)])
def test_the_faster_number_of_threads_is_kept(said, quick, seconds, fastest):
    quick(cores=64, best_seconds=lambda work, device: seconds(torch.get_num_threads()))
    assert said(threads=2)[2]["fastest"] == fastest


def test_a_container_s_quota_holds_for_what_is_measured(said, quick):
    seen = []
    quick(cores=1, convolution=lambda device, dtype: seen.append(torch.get_num_threads()) or 1.0)
    assert said(threads=3)[2]["fastest"] == 1
    assert seen == [1, 1]


@pytest.mark.parametrize(("load", "one_thread"), [(0.1, False), (3.0, True)])
def test_a_busy_machine_is_measured_on_one_thread(said, quick, load, one_thread):
    seen = set()
    quick(load=load, cores=64, best_seconds=lambda work, device: seen.add(torch.get_num_threads()) or 1.0)
    fastest = said(threads=3)[2]["fastest"]
    assert (seen == {1}) == one_thread
    assert fastest == 3


@pytest.mark.parametrize("work", [trials.matrix_product, trials.convolution])
def test_right_numbers_have_a_speed(work):
    assert work(CPU, torch.float32) > 0


@pytest.mark.parametrize(
    ("work", "place", "name"),
    [(trials.matrix_product, torch, "matmul"), (trials.convolution, trials.functional, "conv2d")],
)
@pytest.mark.parametrize("harm", [float("nan"), 5.0])
def test_one_wrong_line_of_single_precision_is_found(monkeypatch, work, place, name, harm):
    right = getattr(place, name)

    def wrong(x, w, **options):
        y = right(x, w, **options)
        if y.dtype == torch.float32:
            y = y.clone()
            y[0, 0] += harm * y.detach().abs().max()
        return y

    monkeypatch.setattr(place, name, wrong)
    with pytest.raises(WrongNumbersError, match="wrong numbers: y is off by"):
        work(CPU, torch.float32)


def test_a_wrong_gradient_is_found(monkeypatch):
    right = trials.functional.conv2d

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(context, w):
            return w.clone()

        @staticmethod
        def backward(context, gradient):
            return gradient * (1.1 if gradient.dtype == torch.float32 else 1.0)

    monkeypatch.setattr(trials.functional, "conv2d", lambda x, w, padding: right(x, Wrong.apply(w), padding=padding))
    with pytest.raises(WrongNumbersError, match="wrong numbers: ∂w is off by 0.1"):
        trials.convolution(CPU, torch.float32)


def test_a_loss_that_is_not_finite_is_found(monkeypatch):
    step, n = trials.training_step(CPU, torch.float32)
    step()
    assert n > 0
    monkeypatch.setattr(trials.functional, "cross_entropy", lambda x, _: x.sum() * float("nan"))
    with pytest.raises(WrongNumbersError, match="the loss is not finite"):
        step()
