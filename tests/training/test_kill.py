"""A run that is killed with SIGKILL, again and again, ends at the weights of a run that is not."""

import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from masil.training import Average, FrameLoss, Mixing, Monitoring, TrainOptions, train
from masil.training.trained import FILE, read_checkpoint


def steps_done(folder):
    checkpoint = read_checkpoint(folder)
    return 0 if checkpoint is None else checkpoint.epoch * 4 + checkpoint.step


def kill_after(steps, delay, command, environment, folder):
    """Start a run, kill it `delay` seconds after it has done `steps` steps in all, and give how many it did."""
    child = subprocess.Popen([sys.executable, *command], env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 250  # on a machine that others keep busy, importing torch takes a minute
    while steps_done(folder) < steps and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    child.wait()
    return steps_done(folder)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
def test_a_killed_run_ends_at_the_same_bits(patterns, tiny, command, environment, tmp_path):
    images = patterns(per_class=18)
    recipe = tiny(
        stages=((3, 8), (3, 16)),
        mixing=Mixing(mixup=0.3, cutmix=0.3),
        loss=FrameLoss(embedding=16).to_json(),
        average=Average("ema", decay=0.9),
        watch=Monitoring(holdout=2, nc_every=3, nc_images=4),
    )
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(images, recipe, whole, device="cpu", options=TrainOptions(precision="float32"))
    child = command(images, recipe, broken, 1, 8)
    first = kill_after(2, 0.013, child, environment, broken)
    second = kill_after(first + 4, 0.029, child, environment, broken)
    assert 2 <= first < second < 24  # killed twice on the way: a child does eight steps at most
    train(images, recipe, broken, device="cpu", options=TrainOptions(precision="float32"))
    expected, found = load_file(whole / FILE), load_file(broken / FILE)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
