"""Whether kernels are used: only on CUDA, after their trial, and never at the cost of a result."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import warnings

import pytest
import torch

from adv_wrappers.accel import triton_loader
from tests.every_case import every_case
from tests.triton_tools import needs_triton

CPU = torch.device("cpu")
ON_CUDA = types.SimpleNamespace(is_cuda=True, device=torch.device("cuda:0"))  # what is asked of a tensor


@pytest.fixture(autouse=True)
def untried():
    triton_loader.trusted.cache_clear()
    yield
    triton_loader.trusted.cache_clear()


@pytest.fixture
def trials(monkeypatch):
    """A twin whose trial does what a list says; gives the devices that it was tried on."""
    twin = types.SimpleNamespace(fault=None, tried=[])

    def trial(device):
        twin.tried.append(device)
        if twin.fault is not None:
            raise twin.fault

    twin.trial = trial
    monkeypatch.setitem(sys.modules, "adv_wrappers.some.file_triton", twin)
    monkeypatch.delenv(triton_loader.TRITON_VARIABLE, raising=False)
    return twin


def test_the_processor_has_no_kernels():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert triton_loader.twin("there.is.no.such", torch.zeros(1)) is None


@needs_triton
def test_one_trial_a_device(trials):
    assert triton_loader.twin("some.file", ON_CUDA) is trials
    assert triton_loader.twin("some.file", ON_CUDA) is trials
    assert trials.tried == [ON_CUDA.device]
    other = types.SimpleNamespace(is_cuda=True, device=torch.device("cuda:1"))
    assert triton_loader.twin("some.file", other) is trials
    assert trials.tried == [ON_CUDA.device, other.device]


@needs_triton
@pytest.mark.parametrize("fault", [AssertionError("off by 3"), RuntimeError("no driver"), ValueError("ptxas")])
def test_a_trial_that_fails_warns_once_and_leaves_the_plain_version(trials, fault):
    trials.fault = fault
    with pytest.warns(RuntimeWarning, match=rf"some\.file .* cuda:0.*{type(fault).__name__}: {fault}") as seen:
        assert triton_loader.twin("some.file", ON_CUDA) is None
        assert triton_loader.twin("some.file", ON_CUDA) is None
    assert len(seen) == len(trials.tried) == 1


@needs_triton
def test_a_twin_that_cannot_be_imported_warns_too(monkeypatch):
    monkeypatch.delenv(triton_loader.TRITON_VARIABLE, raising=False)
    with pytest.warns(RuntimeWarning, match="ModuleNotFoundError"):
        assert triton_loader.twin("there.is.no.such", ON_CUDA) is None


def test_without_triton_there_is_nothing_to_warn_of(monkeypatch, trials):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert triton_loader.twin("some.file", ON_CUDA) is None
    assert not trials.tried


@needs_triton
def test_the_switch_turns_kernels_off_and_on(monkeypatch, trials):
    monkeypatch.setenv(triton_loader.TRITON_VARIABLE, "0")
    assert triton_loader.twin("some.file", ON_CUDA) is None and not trials.tried
    monkeypatch.setenv(triton_loader.TRITON_VARIABLE, "1")
    assert triton_loader.twin("some.file", ON_CUDA) is trials


@needs_triton
@pytest.mark.parametrize("name", ["brightness", "shift", "blur", "warp", "warp_per_row"])
def test_a_kernel_that_is_wrong_fails_its_trial(monkeypatch, name):
    """Every trial compares: kernels that hand out what they were given do not pass."""
    module = importlib.import_module(f"adv_wrappers.daylight.kernels.{name}_triton")
    launcher = {"brightness": "look_up", "blur": "median", "warp_per_row": "warp", "warp": "gather"}.get(name, name)
    monkeypatch.setattr(module, launcher, lambda x, *rest, **more: x.clone())
    with pytest.raises(AssertionError, match="is off by"):
        module.trial(CPU)


@every_case(("got", "expected"), [
    (torch.zeros(2), torch.zeros(3)), (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
    (torch.tensor([1.0]), torch.tensor([1.5])), (torch.tensor([float("nan")]), torch.tensor([1.0])),
])  # fmt: skip
def test_what_is_not_the_same(got, expected):
    with pytest.raises(AssertionError, match=r"^one (gave|is off)"):
        triton_loader.check_equal("one", got, expected)


def test_what_is_the_same():
    triton_loader.check_equal("one", torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]))
    triton_loader.check_equal("none", torch.zeros(0), torch.zeros(0))
