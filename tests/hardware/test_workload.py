import pytest
import torch

from masil.hardware import workload
from masil.hardware.frozen import CPU, FrozenNet
from masil.hardware.workload import WrongNumbersError


@pytest.mark.parametrize("work", [workload.matrix_product, workload.convolution])
def test_right_numbers_have_a_speed(work):
    assert work(CPU, torch.float32) > 0


@pytest.mark.parametrize(
    ("work", "place", "name"),
    [(workload.matrix_product, torch, "matmul"), (workload.convolution, workload.functional, "conv2d")],
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
    right = workload.functional.conv2d

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(context, w):
            return w.clone()

        @staticmethod
        def backward(context, gradient):
            return gradient * (1.1 if gradient.dtype == torch.float32 else 1.0)

    monkeypatch.setattr(workload.functional, "conv2d", lambda x, w, padding: right(x, Wrong.apply(w), padding=padding))
    with pytest.raises(WrongNumbersError, match="wrong numbers: ∂w is off by 0.1"):
        workload.convolution(CPU, torch.float32)


def test_a_loss_that_is_not_finite_is_found(monkeypatch):
    step, n = workload.training_step(CPU, torch.float32)
    step()
    assert n > 0
    monkeypatch.setattr(workload.functional, "cross_entropy", lambda x, _: x.sum() * float("nan"))
    with pytest.raises(WrongNumbersError, match="the loss is not finite"):
        step()


def test_the_best_time_leaves_out_the_first_run_unless_it_is_all_there_is(monkeypatch):
    clock = iter([0.0, 0.01, 1.0, 1.08, 2.0, 2.09])
    monkeypatch.setattr(workload.time, "perf_counter", lambda: next(clock))
    assert workload.best_seconds(lambda: None, CPU, budget=0.15) == pytest.approx(0.08)
    clock = iter([0.0, 9.0])
    assert workload.best_seconds(lambda: None, CPU, budget=0.15) == pytest.approx(9.0)


def test_onnx_runtime_computes_what_torch_does_and_is_found_out_if_not(monkeypatch):
    pytest.importorskip("onnxruntime")
    net = FrozenNet()
    assert net.torch_speed() > 0
    assert net.onnxruntime_speed() > 0
    right = net.forward
    monkeypatch.setattr(net, "forward", lambda x: right(x) * 1.01)
    with pytest.raises(WrongNumbersError, match="off by"):
        net.onnxruntime_speed()
