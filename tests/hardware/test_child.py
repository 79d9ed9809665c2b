import os
import time
from pathlib import Path

import pytest

from masil.hardware.child import START, run


def test_a_child_that_answers_is_heard_and_its_babble_is_not(machine):
    outcome = run([], command=machine("""
        print("a library greets its user"); print("[1, 2]"); print('{"stage": 5}'); print("null")
        say(begin="a"); say(stage="a", speed=2.5)
        say(begin="b"); say(stage="b", error="ValueError: no")
        say(done=True)
    """))  # fmt: skip
    assert outcome.found["a"]["speed"] == 2.5
    assert outcome.failures == {"b": "ValueError: no"}
    assert outcome.conclusive


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        ("die('SIGILL')", "killed by SIGILL (illegal instruction)"),
        ("die('SIGSEGV')", "killed by SIGSEGV (segmentation fault)"),
        ("sys.exit(1)", "ended with code 1 before it was done"),
        ("raise RuntimeError('no kernel')", "ended with code 1 before it was done: RuntimeError: no kernel"),
        ("sys.exit(0)", "ended with code 0 before it was done"),
    ],
)
def test_the_stage_a_child_ends_in_is_the_one_that_failed(machine, end, sentence):
    outcome = run([], command=machine(f"say(begin='first'); say(stage='first', x=1); say(begin='second'); {end}"))
    assert outcome.found["first"]["x"] == 1
    assert outcome.failures == {"second": sentence}
    assert outcome.conclusive


def test_a_child_that_hangs_is_ended_with_all_it_started(machine, tmp_path):
    left = tmp_path / "grandchild"
    command = machine(f"""
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        open({str(left)!r}, "w").write(str(child.pid))
        say(begin="convolution"); time.sleep(60)
    """)
    outcome = run([], command=command, limit=0.5)
    assert outcome.failures == {"convolution": "gave no answer within 0.5 s"}
    assert not outcome.conclusive
    grandchild = Path("/proc", left.read_text())
    deadline = time.monotonic() + 60
    while grandchild.exists() and "Z" not in (grandchild / "stat").read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert time.monotonic() < deadline


def test_babble_does_not_buy_time(machine):
    outcome = run(
        [], command=machine("say(begin='slow')\nwhile True: print('still here'); time.sleep(0.05)"), limit=0.5
    )
    assert outcome.failures == {"slow": "gave no answer within 0.5 s"}


def test_a_child_that_closes_its_output_and_stays_is_one_that_hangs(machine):
    outcome = run([], command=machine("say(begin='quiet'); os.close(1); time.sleep(60)"), limit=30)
    assert outcome.failures == {"quiet": "gave no answer within 30 s"}
    assert not outcome.conclusive


def test_a_child_that_cannot_start_says_nothing_of_the_hardware():
    outcome = run([], command=["/no/such/python"])
    assert "could not be started" in outcome.failures[START]
    assert not outcome.conclusive


def test_only_a_signal_before_the_first_stage_says_something_of_the_hardware(machine):
    assert not run([], command=machine("import no_such_package")).conclusive
    assert run([], command=machine("die('SIGILL')")).conclusive


def test_the_child_gets_the_instruction_set_and_none_of_the_user_s_limits(machine, monkeypatch):
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "AVX" if "ISA" in name else "7")
    command = machine("say(stage='environment', **os.environ); say(done=True)")
    plain = run([], command=command).found["environment"]
    limited = run([], "AVX2", command, extra={"MORE": "yes"}).found["environment"]
    for name in ("DNNL_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        assert name not in plain
        assert name not in limited
    assert "ONEDNN_MAX_CPU_ISA" not in plain
    assert limited["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert limited["MORE"] == "yes"
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX"
