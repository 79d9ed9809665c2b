"""Decisions, each from a machine made of paper: child processes that really die, hang or give wrong numbers."""

import os
import time
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest

from masil.errors import InputError
from masil.hardware import Hardware, probe
from masil.hardware.decide import START, run_trial
from masil.storage import from_json, to_json

LADDER = ["AVX512_CORE_FP16 cpu", "AVX512_CORE cpu", "AVX2 cpu"]
HONEST = "train('float32', 100); train('bfloat16', 300); say(done=True)"


@pytest.fixture(autouse=True)
def _intel(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


@pytest.fixture
def on(machine):
    """Give a function that decides for a machine whose child runs this code."""
    return lambda body: probe(refresh=True, command=machine(body))


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr("masil.hardware.decide.STAGE_LIMIT", 0.5)


# The child of a trial


def test_a_child_that_answers_is_heard_and_its_babble_is_not(machine):
    outcome = run_trial("cpu", command=machine("""
        print("a library greets its user"); print("[1, 2]"); say(odd=5); print("no end of line", end="")
        say(begin="a"); say(stage="a", speed=2.5)
        say(begin="b"); say(stage="b", error="ValueError: no")
        say(done=True)
    """))  # fmt: skip
    assert outcome.figures["a"]["speed"] == 2.5
    assert outcome.failures == {"b": "ValueError: no"}
    assert outcome.conclusive


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        ("die('SIGILL')", "killed by SIGILL (illegal instruction)"),
        ("raise RuntimeError('no kernel')", "ended with code 1 before it was done: RuntimeError: no kernel"),
        ("sys.exit(0)", "ended with code 0 before it was done"),
    ],
)
def test_the_stage_a_child_ends_in_is_the_one_that_failed(machine, end, sentence):
    outcome = run_trial(
        "cpu", command=machine(f"say(begin='first'); say(stage='first', x=1); say(begin='second'); {end}")
    )
    assert outcome.figures["first"]["x"] == 1
    assert outcome.failures == {"second": sentence}
    assert outcome.conclusive


@pytest.mark.usefixtures("_impatient")
def test_a_child_that_hangs_is_ended_with_all_it_started(machine, tmp_path):
    left = tmp_path / "grandchild"
    outcome = run_trial("cpu", command=machine(f"""
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        open({str(left)!r}, "w").write(str(child.pid))
        say(begin="convolution"); time.sleep(60)
    """))  # fmt: skip
    assert outcome.failures == {"convolution": "gave no answer within 0.5 s"}
    assert not outcome.conclusive
    grandchild = Path("/proc", left.read_text())
    deadline = time.monotonic() + 60
    while grandchild.exists() and "Z" not in (grandchild / "stat").read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert time.monotonic() < deadline


@pytest.mark.parametrize(
    "body",
    [
        "say(begin='slow')\nwhile True: print('still here'); say(more=1); time.sleep(0.05)",  # babble buys no time
        "say(begin='slow'); os.close(1); time.sleep(60)",
    ],
)
@pytest.mark.usefixtures("_impatient")
def test_a_child_that_does_not_answer_in_time_proves_nothing(machine, body):
    outcome = run_trial("cpu", command=machine(body))
    assert outcome.failures == {"slow": "gave no answer within 0.5 s"}
    assert not outcome.conclusive


def test_only_a_signal_before_the_first_stage_says_something_of_the_hardware(machine):
    outcome = run_trial("cpu", command=["/no/such/python"])
    assert "could not be started" in outcome.failures[START]
    assert not outcome.conclusive
    assert not run_trial("cpu", command=machine("import no_such_package")).conclusive
    assert run_trial("cpu", command=machine("die('SIGILL')")).conclusive


def test_the_child_gets_the_instruction_set_and_none_of_the_user_s_limits(machine, monkeypatch):
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "AVX" if "ISA" in name else "7")
    command = machine("say(stage='environment', **os.environ); say(done=True)")
    plain = run_trial("cpu", command=command).figures["environment"]
    limited = run_trial("cpu", "AVX2", command).figures["environment"]
    unlimited = {"DNNL_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS"}
    assert unlimited.isdisjoint(plain)
    assert unlimited.isdisjoint(limited)
    assert "ONEDNN_MAX_CPU_ISA" not in plain
    assert limited["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX"


# Decisions


def test_an_honest_machine_is_tried_once_and_left_alone(on, asked):
    hardware = on(HONEST)
    assert (hardware.device, hardware.precision, hardware.onednn_isa) == ("cpu", "bfloat16", None)
    assert hardware.failures == {}
    assert hardware.settled
    assert asked() == ["None cpu"]


def test_a_machine_that_dies_of_bfloat16_lives_under_fewer_instructions(on, asked):
    """The machine of the cloud: AMX announced and deadly; below it bfloat16 lives, and is slower than float32."""
    hardware = on("""
        train("float32", 256)
        train("bfloat16", 150, deadly="convolution" if isa is None else None)
        say(done=True)
    """)
    assert asked() == ["None cpu", *LADDER]
    assert (hardware.precision, hardware.onednn_isa) == ("float32", "AVX512_CORE_FP16")
    assert hardware.failures == {"cpu bfloat16 convolution": "killed by SIGILL (illegal instruction)"}
    assert hardware.measurements["cpu bfloat16 training images/s (AVX512_CORE_FP16)"] == 150
    assert hardware.measurements["cpu float32 training images/s"] == 256


FASTEST = """
speed = {None: 900, "AVX512_CORE_FP16": 900, "AVX512_CORE": 200, "AVX2": 210}[isa]
train("float32", 100)
train("bfloat16", speed, deadly="training" if isa in (None, "AVX512_CORE_FP16") else None); say(done=True)
"""
FLOAT32_DIES = """
train("float32", 100, deadly=None if isa == "AVX2" else "convolution"); train("bfloat16", 20); say(done=True)
"""
FAST_BUT_WRONG = "train('float32', 100); train('bfloat16', 900, wrong='convolution'); say(done=True)"


@pytest.mark.parametrize(
    ("body", "precision", "isa", "failures"),
    [
        ("train('float32', 100); train('bfloat16', 105); say(done=True)", "float32", None, 0),  # hardly faster
        # Products are emulated: faster on the trial's small network alone.
        ("train('float32', 100); train('bfloat16', 150, products=25); say(done=True)", "float32", None, 0),
        (FASTEST, "bfloat16", "AVX512_CORE", 2),
        (FLOAT32_DIES, "float32", "AVX2", 3),
        ("train('float32', 100); train('bfloat16', 300, deadly='matrix product')", "float32", None, 4),
        (FAST_BUT_WRONG.replace("wrong=", "wrong=isa is None and "), "bfloat16", "AVX512_CORE_FP16", 1),
        (FAST_BUT_WRONG, "float32", None, 4),
    ],
)
def test_of_the_settings_that_survive_the_clearly_fastest_is_chosen(on, body, precision, isa, failures):
    hardware = on(body)
    assert (hardware.precision, hardware.onednn_isa, hardware.settled) == (precision, isa, True)
    assert len(hardware.failures) == failures


def test_other_processors_than_intel_s_kind_have_no_ladder(on, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    hardware = on(FAST_BUT_WRONG)
    assert (hardware.precision, hardware.onednn_isa) == ("float32", None)
    assert hardware.failures == {"cpu bfloat16 convolution": "wrong numbers"}


@pytest.mark.usefixtures("_impatient")
def test_slowness_says_nothing_about_instructions(on, asked):
    """A busy machine that runs out of time is not tried under fewer instructions, nor limited to them."""
    hardware = on("say(begin='float32 matrix product'); time.sleep(60)")
    assert asked() == ["None cpu"]
    assert (hardware.onednn_isa, hardware.precision, hardware.settled) == (None, "float32", False)
    hardware = on("train('float32', 100); say(begin='bfloat16 matrix product'); time.sleep(60)")
    assert (hardware.precision, hardware.settled) == ("float32", True)
    assert hardware.failures["cpu bfloat16 matrix product"] == "gave no answer within 0.5 s"


def test_a_machine_on_which_nothing_survives_has_no_precision(on):
    hardware = on("train('float32', 100, deadly='matrix product')")
    assert hardware.precisions == {}
    assert hardware.settled


@pytest.mark.parametrize("body", ["import no_such_package", "print('garbage')", "sys.exit(1)"])
def test_a_trial_that_cannot_be_carried_out_leaves_float32_assumed_and_unsettled(on, asked, body):
    hardware = on(body)
    assert (hardware.device, hardware.precision, hardware.settled) == ("cpu", "float32", False)
    assert asked() == ["None cpu"]


@pytest.mark.parametrize(
    ("cuda", "device", "precision"),
    [
        ("train('float32', 5000); train('bfloat16', 9000)", "cuda", "bfloat16"),
        ("train('float32', 5000); train('bfloat16', 3000)", "cuda", "float32"),  # emulated, as on older cards
        ("train('float32', 50); train('bfloat16', 40)", "cpu", "float32"),
        ("train('float32', 5000, wrong='matrix product')", "cpu", "float32"),
        ("say(begin='float32 matrix product'); die('SIGSEGV')", "cpu", "float32"),
    ],
)
def test_the_fastest_device_that_works_is_chosen(on, cuda, device, precision):
    hardware = on(f"""
        if "cuda" in arguments:
            {cuda}
        else:
            say(stage="{START}", devices=["cuda"]); train("float32", 100); train("bfloat16", 60)
        say(done=True)
    """)
    assert (hardware.device, hardware.precision) == (device, precision)
    assert hardware.precisions["cpu"] == "float32"


@pytest.mark.parametrize(("fastest", "threads"), [("3", 3), ("0", 8), ("'many'", 8), ("float('nan')", 8), ("None", 8)])
def test_threads_are_those_found_fastest_or_all(on, monkeypatch, fastest, threads):
    monkeypatch.setattr("masil.hardware.decide.usable_cores", lambda: 8)
    assert on(f"say(stage='threads', fastest={fastest}); {HONEST}").threads == threads


def test_a_figure_that_is_none_is_not_kept(on):
    hardware = on(f"say(stage='odd', speed=float('inf'), name='x', list=[]); {HONEST}")
    assert not [name for name in hardware.measurements if "odd" in name]


# The answer


EXAMPLE = Hardware("cpu", {"cpu": "bfloat16"}, failures={"cuda": "gone"})


@pytest.mark.parametrize("name", [field.name for field in fields(Hardware)])
@pytest.mark.parametrize("value", [-1, 1.5, ["cpu"], {"cpu": 3.5j}, {"tpu": "float32j"}])
def test_a_damaged_answer_is_refused_by_the_field(name, value):
    assert from_json(Hardware, to_json(EXAMPLE), "answer") == EXAMPLE
    if (name, value) != ("failures", {"tpu": "float32j"}):
        with pytest.raises(InputError, match=f"'{name}' cannot be"):
            from_json(Hardware, to_json(EXAMPLE) | {name: value}, "answer")


def test_the_precision_is_that_of_the_device_and_float32_where_none_is_known():
    assert EXAMPLE.precision == "bfloat16"
    assert replace(EXAMPLE, device="cuda").precision == "float32"
    with pytest.raises(FrozenInstanceError):
        EXAMPLE.device = "cuda"
