import os
from dataclasses import replace

import pytest
import torch

from masil.errors import DeviceError, InputError
from masil.hardware import Hardware, autocast, resolve_device, set_threads
from masil.hardware.answers import keep
from masil.hardware.machine import key

FIGURES = {"cpu float32 training images/s": 100.0}
PLAIN = Hardware("cpu", {"cpu": "float32"}, None, 2, "torch", "2.13.0", key(), "2026", measurements=FIGURES)


@pytest.fixture(autouse=True)
def _known():
    keep(PLAIN)


@pytest.fixture
def two_cards(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_cards(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("name", "device"),
    [("cpu", "cpu"), (" CPU ", "cpu"), ("cuda", "cuda"), ("cuda:1", "cuda:1"), ("cuda:01", "cuda:1"), ("auto", "cuda")],
)
def test_a_device_that_is_there_is_given(two_cards, name, device):
    keep(replace(PLAIN, device="cuda", precisions={"cuda": "bfloat16", "cpu": "float32"}))
    assert resolve_device(name) == torch.device(device)


def test_auto_does_without_a_device_that_has_gone(no_cards):
    keep(replace(PLAIN, device="cuda", precisions={"cuda": "bfloat16", "cpu": "float32"}))
    assert resolve_device() == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cdua", "no device called 'cdua'; did you mean 'cuda'"),
        ("gpu", "no device called 'gpu'; did you mean 'cuda'"),
        ("gpu:0", "no device called 'gpu:0'; did you mean 'cuda'"),
        ("", "no device called ''; known are: auto, cpu, cuda, mps"),
        ("tensor", "known are: auto, cpu, cuda, mps"),
        ("cuda:", "no device called 'cuda:'"),
        ("cuda:first", "no device called 'cuda:first'"),
        ("cuda:-1", "no device called 'cuda:-1'"),
        ("cpu:1", "no device called 'cpu:1'"),
        ("auto:1", "no device called 'auto:1'"),
        ("cuda:2", "finds 2 of this kind, counted from 0: did you mean 'cuda:1'"),
    ],
)
def test_a_name_that_is_none_gets_a_suggestion(two_cards, name, sentence):
    with pytest.raises(DeviceError, match=sentence):
        resolve_device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps"])
def test_a_device_that_is_not_there_is_refused_with_what_is(no_cards, name):
    with pytest.raises(DeviceError, match=rf"'{name}' was asked for, but torch .* finds none here; available: cpu\."):
        resolve_device(name)


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_a_machine_on_which_torch_dies_is_refused(name):
    keep(
        replace(PLAIN, precisions={}, failures={"cpu float32 matrix product": "killed by SIGILL (illegal instruction)"})
    )
    with pytest.raises(
        DeviceError, match=r"does not work on this machine: cpu float32 matrix product killed by SIGILL"
    ):
        resolve_device(name)


def test_a_machine_that_needs_a_limit_for_float32_gets_it_unless_the_user_has_set_another(monkeypatch):
    keep(replace(PLAIN, onednn_isa="AVX2", measurements={}))
    assert resolve_device("cpu") == torch.device("cpu")
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
    with pytest.raises(DeviceError, match=r"only with ONEDNN_MAX_CPU_ISA=AVX2, but 'AVX512_CORE' is set\. Leave"):
        resolve_device("cpu")
    keep(replace(PLAIN, onednn_isa="AVX2"))  # here float32 survives without the limit, too
    assert resolve_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("precisions", "isa", "dtype"),
    [
        ({"cpu": "float32"}, None, torch.float32),
        ({"cpu": "bfloat16"}, None, torch.bfloat16),
        ({"cpu": "bfloat16"}, "AVX2", torch.float32),  # torch is imported: the limit comes too late
        ({}, None, torch.float32),
    ],
)
def test_autocast_is_bfloat16_only_where_it_was_found_good(precisions, isa, dtype):
    keep(replace(PLAIN, precisions=precisions, onednn_isa=isa))
    for device in ("cpu", torch.device("cpu")):
        with autocast(device):
            used = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
        assert used == dtype
    assert not torch.is_autocast_enabled("cpu")


def test_threads_are_the_given_ones_else_the_user_s_else_the_fastest(monkeypatch):
    before = torch.get_num_threads()
    try:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        assert set_threads() == torch.get_num_threads() == PLAIN.threads
        assert set_threads(1) == torch.get_num_threads() == 1
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert set_threads() == 1
        with pytest.raises(InputError, match="cannot work with 0 threads"):
            set_threads(0)
    finally:
        torch.set_num_threads(before)
    assert os.environ["OMP_NUM_THREADS"] == "1"
