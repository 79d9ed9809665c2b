"""Decisions, each from a machine made of paper; the lying ones are child processes that really die."""

import math

import pytest

from masil.hardware import decide as decisions
from masil.hardware.child import START, Outcome, run
from masil.hardware.decide import decide, decide_compile

LADDER = ["AVX512_CORE_FP16 train cpu", "AVX512_CORE train cpu", "AVX2 train cpu"]


@pytest.fixture(autouse=True)
def _intel(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def on(command, **limits):
    return decide(lambda arguments, isa: run(arguments, isa, command, **limits))


def trained(float32=None, bfloat16=None, devices=(), **more):
    """What a trial finds that trains at these speeds."""
    found = {START: {"devices": list(devices)}}
    failures = {}
    for precision, speed in (("float32", float32), ("bfloat16", bfloat16)):
        if speed is None:
            failures[f"{precision} matrix product"] = "wrong numbers: y is off by 0.5 of its largest entry"
        for stage in ("matrix product", "convolution", "training") if speed is not None else ():
            found[f"{precision} {stage}"] = {"images/s" if stage == "training" else "GFLOP/s": speed}
    return Outcome(found | more, failures)


def paper(cpu, engine=(10, 20), **devices):
    """Answer trials from tables: `cpu` by instruction set, the others by device."""
    torch, onnxruntime = engine

    def ask(arguments, isa):
        if arguments == ["engine"]:
            found = {"torch inference": {"images/s": torch}, "onnxruntime inference": {"images/s": onnxruntime}}
            return Outcome({name: figures for name, figures in found.items() if figures["images/s"]}, {})
        return cpu[isa] if arguments == ["train", "cpu"] else devices[arguments[1]]

    return ask


def test_an_honest_machine_is_tried_once_and_left_alone(machine, asked):
    hardware = on(machine("train('float32', 100); train('bfloat16', 300); say(done=True)"))
    assert (hardware.device, hardware.precision, hardware.onednn_isa) == ("cpu", "bfloat16", None)
    assert hardware.failures == {}
    assert hardware.settled
    assert asked() == ["None train cpu", "None engine"]


def test_bfloat16_that_is_hardly_faster_is_not_chosen(machine):
    assert on(machine("train('float32', 100); train('bfloat16', 105); say(done=True)")).precision == "float32"


def test_a_machine_that_dies_of_bfloat16_lives_under_fewer_instructions(machine, asked):
    """The machine of the cloud: AMX announced and deadly; below it bfloat16 lives, and is slower than float32."""
    hardware = on(
        machine("""
        train("float32", 256)
        train("bfloat16", 150, deadly="convolution" if isa is None else None)
        say(done=True)
    """)
    )
    assert asked() == ["None train cpu", *LADDER, "AVX512_CORE_FP16 engine"]
    assert (hardware.precision, hardware.onednn_isa) == ("float32", "AVX512_CORE_FP16")
    assert hardware.failures == {"cpu bfloat16 convolution": "killed by SIGILL (illegal instruction)"}
    assert hardware.measurements["cpu bfloat16 training images/s (AVX512_CORE_FP16)"] == 150
    assert hardware.measurements["cpu float32 training images/s"] == 256


def test_of_the_settings_that_survive_the_clearly_fastest_is_chosen(machine):
    hardware = on(
        machine("""
        speed = {None: 900, "AVX512_CORE_FP16": 900, "AVX512_CORE": 200, "AVX2": 210}[isa]
        train("float32", 100)
        train("bfloat16", speed, deadly="training" if isa in (None, "AVX512_CORE_FP16") else None)
        say(done=True)
    """)
    )
    assert (hardware.precision, hardware.onednn_isa) == ("bfloat16", "AVX512_CORE")
    assert set(hardware.failures) == {"cpu bfloat16 training", "cpu bfloat16 training (AVX512_CORE_FP16)"}


def test_a_machine_on_which_bfloat16_always_dies_is_left_alone_in_float32(machine):
    hardware = on(machine("train('float32', 100); train('bfloat16', 300, deadly='matrix product')"))
    assert (hardware.precision, hardware.onednn_isa, hardware.settled) == ("float32", None, True)
    assert len(hardware.failures) == 4


def test_slowness_says_nothing_about_instructions(machine, asked):
    """A busy machine that runs out of time is not tried under fewer instructions, nor limited to them."""
    hardware = on(machine("say(begin='float32 matrix product'); time.sleep(60)"), limit=0.3)
    assert asked() == ["None train cpu"]
    assert (hardware.onednn_isa, hardware.precision, hardware.settled) == (None, "float32", False)


def test_a_machine_that_hangs_in_bfloat16_is_not_waited_for(machine):
    hardware = on(machine("train('float32', 100); say(begin='bfloat16 matrix product'); time.sleep(60)"), limit=0.3)
    assert (hardware.precision, hardware.settled) == ("float32", True)
    assert hardware.failures["cpu bfloat16 matrix product"] == "gave no answer within 0.3 s"


def test_float32_that_dies_as_the_machine_is_may_live_under_fewer_instructions(machine):
    hardware = on(
        machine("""
        train("float32", 100, deadly=None if isa == "AVX2" else "convolution")
        train("bfloat16", 20)
        say(done=True)
    """)
    )
    assert (hardware.precision, hardware.onednn_isa) == ("float32", "AVX2")


def test_a_machine_on_which_nothing_survives_has_no_precision(machine):
    hardware = on(machine("train('float32', 100, deadly='matrix product')"))
    assert hardware.precisions == {}
    assert hardware.settled
    assert hardware.engine == "torch"


@pytest.mark.parametrize("body", ["import no_such_package", "print('garbage')", "sys.exit(1)"])
def test_a_trial_that_cannot_be_carried_out_leaves_float32_assumed_and_unsettled(machine, asked, body):
    hardware = on(machine(body))
    assert (hardware.device, hardware.precision, hardware.settled) == ("cpu", "float32", False)
    assert asked() == ["None train cpu"]


def test_wrong_numbers_are_a_failure_too():
    tables = {None: trained(100, None), "AVX512_CORE_FP16": trained(100, 90)}
    tables |= {"AVX512_CORE": trained(100, 80), "AVX2": trained(100, 70)}
    hardware = decide(paper(tables))
    assert (hardware.precision, hardware.onednn_isa) == ("float32", "AVX512_CORE_FP16")
    assert "wrong numbers" in hardware.failures["cpu bfloat16 matrix product"]


def test_training_fast_does_not_excuse_a_wrong_convolution():
    plain = trained(100, 900)
    wrong = Outcome({stage: plain.found[stage] for stage in plain.found if stage != "bfloat16 convolution"}, {})
    tables = dict.fromkeys((None, "AVX512_CORE_FP16", "AVX512_CORE", "AVX2"), wrong)
    assert decide(paper(tables)).precision == "float32"


def test_other_processors_than_intel_s_kind_have_no_ladder(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    hardware = decide(paper({None: trained(100, None)}))
    assert (hardware.precision, hardware.onednn_isa) == ("float32", None)


@pytest.mark.parametrize(
    ("cuda", "device", "precision"),
    [
        (trained(5000, 9000), "cuda", "bfloat16"),
        (trained(5000, 3000), "cuda", "float32"),  # emulated, as on older cards
        (trained(50, 40), "cpu", "float32"),
        (trained(None, None), "cpu", "float32"),
        (Outcome({}, {"float32 matrix product": "killed by SIGSEGV (segmentation fault)"}), "cpu", "float32"),
    ],
)
def test_the_fastest_device_that_works_is_chosen(cuda, device, precision):
    hardware = decide(paper({None: trained(100, 60, devices=["cuda"])}, cuda=cuda))
    assert (hardware.device, hardware.precision) == (device, precision)
    assert hardware.precisions["cpu"] == "float32"
    assert hardware.engine == ("torch" if device == "cuda" else "onnxruntime")


@pytest.mark.parametrize(
    ("engine", "chosen"),
    [((10, 20), "onnxruntime"), ((20, 10), "torch"), ((20, None), "torch"), ((None, 5), "onnxruntime")],
)
def test_the_faster_engine_is_chosen_and_torch_if_there_is_one_only(engine, chosen):
    assert decide(paper({None: trained(100, 60)}, engine)).engine == chosen


@pytest.mark.parametrize(
    ("figures", "threads"),
    [({"fastest": 3}, 3), ({}, 8), ({"fastest": 0}, 8), ({"fastest": "many"}, 8), ({"fastest": math.nan}, 8)],
)
def test_threads_are_those_found_fastest_or_all(monkeypatch, figures, threads):
    monkeypatch.setattr(decisions, "usable_cores", lambda: 8)
    assert decide(paper({None: trained(100, 60, threads=figures)})).threads == threads


@pytest.mark.parametrize(
    ("eager", "compiled", "pays"),
    [(40, 20, True), (40, 39, False), (20, 40, False), (40, None, False), (None, 20, False)],
)
def test_compiling_pays_only_if_it_works_and_is_clearly_faster(eager, compiled, pays):
    hardware = decide(paper({None: trained(100, 200)}))
    assert hardware.compile is None
    steps = {"eager step": {"ms": eager}, "compiled step": {"ms": compiled}}
    seen = []

    def ask(arguments, isa):
        seen.append((arguments, isa))
        failures = {name: "ended" for name, figures in steps.items() if figures["ms"] is None}
        return Outcome({name: figures for name, figures in steps.items() if figures["ms"]}, failures)

    answer = decide_compile(hardware, ask)
    assert answer.compile is pays
    assert seen == [(["compile", "cpu", "bfloat16"], None)]
    assert answer.measurements.items() >= hardware.measurements.items()
    assert len(answer.failures) == [eager, compiled].count(None)


def test_a_figure_that_is_none_is_not_kept():
    hardware = decide(paper({None: trained(100, 60, odd={"speed": math.inf, "name": "x", "list": []})}))
    assert not [name for name in hardware.measurements if "odd" in name]
