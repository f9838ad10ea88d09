"""Data sheet values: which GPUs have matrix units for half precision."""

from __future__ import annotations

import pytest

from gpuwatch.domain.market.gpu_cards import gpu_specs


@pytest.mark.parametrize("name", ["H100 SXM", "A100 PCIe 80GB", "RTX 4090", "MI300X"])
def test_matrix_units_by_architecture_or_module(name: str) -> None:
    assert gpu_specs()[name].has_tensor_cores


@pytest.mark.parametrize("name", ["GTX 1660 Ti", "Tesla P100 PCIe", "GTX 1080 Ti"])
def test_no_matrix_units(name: str) -> None:
    found = [specs for specs in gpu_specs().values() if specs.name == name or specs.name == name.removeprefix("Tesla ")]
    assert not any(specs.has_tensor_cores for specs in found)


def test_a_row_of_the_catalogue_is_read_whole() -> None:
    h100, l4 = gpu_specs()["H100 SXM"], gpu_specs()["L4"]
    assert (h100.memory_gib, h100.fp16_tflops, h100.power_w) == (80.0, 989.4, 700.0)
    assert (h100.nvlink, l4.nvlink) == (True, False)


def test_a_board_with_several_gpus_shares_its_power() -> None:
    watts = {name: gpu_specs()[name].power_w for name in ("A16", "K80", "M60", "BI-V150")}
    assert watts == {"A16": 250 / 4, "K80": 300 / 2, "M60": 300 / 2, "BI-V150": 350 / 2}


def test_the_32_bit_rate_of_cdna_is_a_quarter_of_the_16_bit_rate() -> None:
    assert gpu_specs()["MI100"].fp32_tflops == 184.6 / 4  # gpuopen.com, AMD matrix cores: 256 of 1,024 FLOP a clock
