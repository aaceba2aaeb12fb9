"""What the pages of results say of the machine that made them."""

from __future__ import annotations

import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def figures():
    with result_script("figures") as module:
        yield module


@pytest.mark.parametrize(("said", "name"), [
    ("Vendor ID: AuthenticAMD\n  Model name: AMD EPYC\n    CPU family: 25\n    Model: 17\n",
     "AMD EPYC (family 25, model 17)"),
    ("Model name: Intel(R) Xeon(R) Processor @ 2.10GHz\nCPU family: 6\nModel: 143\n",
     "Intel(R) Xeon(R) Processor @ 2.10GHz (family 6, model 143)"),
    ("Vendor ID: ARM\nModel name: Neoverse-N1\nModel: 1\n", "Neoverse-N1"),
    ("Apple M2 Pro\n", "Apple M2 Pro"),
    ("Architecture: riscv64\nModel: 1\n", ""),
    ("", ""),
])  # fmt: skip
def test_processors_have_names(figures, said, name):
    assert figures.processor_of(said) == name


def test_a_machine_is_its_processor_and_versions(figures):
    processor, machine = figures.processor(), figures.machine()
    assert processor and machine.startswith(f"{processor}, ") and "torch" in machine


def test_a_span_is_a_mean_and_a_range_of_what_is_known(figures):
    assert figures.span([1.0, None, 2.0]) == "2 (1 to 2)" and figures.span([0.25, 0.5], 2) == "0.38 (0.25 to 0.50)"
    assert figures.span([499.6, 500.4]) == "500" and figures.span([None]) == figures.span([]) == ""
