"""What is computed on a GPU: as on the processor, within the budget, by kernels that passed their trials.

Everything here is skipped without CUDA. ``pytest tests/accel/test_cuda.py`` on a machine that has it is the check of a
new driver, GPU or release of torch and Triton; ``benchmarks/gpu.py`` measures how fast it is.
"""

from __future__ import annotations

import warnings

import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.accel.triton_loader import TRITON_VARIABLE, trusted
from tests.laws.checks import ROWS, cases, fitting, inside, pairs, wrapper
from tests.rigs import run, same, vector

if not torch.cuda.is_available():  # hundreds of cases are not even collected
    pytest.skip("CUDA is not here", allow_module_level=True)

KERNELS = ("blur", "brightness", "jpeg", "shift", "warp", "warp_per_row")


@pytest.fixture(autouse=True)
def trusted_kernels():
    """A kernel that is not used, or a graph that is not captured, warns: here that is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.mark.parametrize("case", cases(), ids=str)
def test_tensors_on_the_gpu(case):
    """Laws 1, 4 and 5: an environment of CUDA tensors sees what one of CPU tensors sees, within its budget."""
    budget = fitting(case)[0]
    results = {
        kind: run(kind, case.rig, wrapper(case.threat(budget, torch.float64, device=device)), ROWS)
        for kind, device in (("tensor", "cpu"), ("cuda", "cuda"))
    }
    clean = run("cuda", case.rig, seeds=ROWS)
    for true, attacked in pairs(case, results["cuda"], clean):
        inside(case.budget(budget), attacked, true, case.leaf)
    same(results["cuda"], results["tensor"], False, f"{case}: tensors on the GPU and on the processor")


@pytest.mark.parametrize("case", cases(), ids=str)
def test_a_host_environment_and_a_victim_on_the_gpu(case):
    """Observations go to the GPU and come back as they would have been on the host."""
    on_gpu = run("same", case.rig, wrapper(case.threat(dtype=torch.float64, device="cuda")), ROWS)
    on_host = run("same", case.rig, wrapper(case.threat(dtype=torch.float64)), ROWS)
    same(on_gpu, on_host, False, f"{case}: a victim on the GPU and on the processor")


@pytest.mark.parametrize("case", cases(rigs=2), ids=str)
def test_observations_stay_on_the_gpu(case):
    env = adv.wrap(vector("cuda", case.rig, 3), case.threat(device="cuda"))
    obs, _ = env.reset(seed=0)
    for leaf in obs.values() if isinstance(obs, dict) else obs if isinstance(obs, tuple) else [obs]:
        assert leaf.is_cuda


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_pass_their_trial(name, monkeypatch):
    monkeypatch.delenv(TRITON_VARIABLE, raising=False)
    trusted.cache_clear()
    assert trusted(f"daylight.kernels.{name}", torch.device("cuda:0")) is not None


@pytest.mark.parametrize("shape", [(1, 84, 84, 4), (5, 84, 84, 4), (3, 210, 160, 3), (2, 37, 61, 1)], ids=str)
@pytest.mark.parametrize("triton", ["1", "0"])
def test_transforms_are_equal_to_the_bit(shape, triton, monkeypatch):
    """By Triton's kernels and by torch's own."""
    monkeypatch.setenv(TRITON_VARIABLE, triton)
    image = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    layout = "HWC" if shape[-1] == 3 else "HWF"
    transforms = {
        "brightness": lambda x: adv.daylight.brightness(x, 1.3, -20),
        "median 3": lambda x: adv.daylight.median_blur(x, 3, layout=layout),
        "median 5": lambda x: adv.daylight.median_blur(x, 5, layout=layout),
        "rotation": lambda x: adv.daylight.rotate(x, 3.0, layout=layout),
        "shift": lambda x: adv.daylight.shift(x, 2, -3, layout=layout),
        "JPEG": lambda x: adv.daylight.jpeg(x, 30, layout=layout),
        "perspective": lambda x: adv.daylight.perspective(x, 5, layout=layout),
    }
    for name, transform in transforms.items():
        on_gpu = transform(image.cuda())
        assert on_gpu.is_cuda
        torch.testing.assert_close(on_gpu.cpu(), transform(image), rtol=0, atol=0, msg=f"{name} {shape}")


@pytest.mark.parametrize("name", ["cartpole-dqn", "cartpole-ppo"])
def test_evaluations_return_the_same(name):
    threats = ["noise:eps=0.1", "fgsm:eps=0.1", "max-diff:eps=0.1,noise=0"]
    on_gpu, on_host = (
        adv.evaluate(f"zoo:{name}", "CartPole-v1", threats, episodes=4, device=device) for device in ("cuda", "cpu")
    )
    for a, b in zip(on_gpu.threats, on_host.threats, strict=True):
        assert a["returns"] == b["returns"], a["label"]
