"""Figures as people write them."""

from __future__ import annotations

import pytest

from gpuwatch.domain.plan.figures import FigureRange, parse_figure, parse_gpu_config, parse_range


@pytest.mark.parametrize(
    ("text", "value"), [("70B", 70e9), ("1.5t", 1.5e12), ("500M", 5e8), ("10 k", 1e4), ("7", 7.0), (7e9, 7e9)]
)
def test_a_figure_may_end_in_its_size(text: str | float, value: float) -> None:
    assert parse_figure(text) == value


@pytest.mark.parametrize(
    "text", ["", "B", "-1", "1e400", "0", "70BB", "seven", "1_000", 0.0, 5e-324, float("nan"), float("inf")]
)
def test_what_is_no_figure_says_what_was_expected(text: str | float) -> None:
    with pytest.raises(ValueError, match="expected a number above 0"):
        parse_figure(text)


def test_a_range_is_two_figures() -> None:
    assert parse_range("350-500") == FigureRange(350, 500)
    assert parse_range("5") == parse_range(5) == FigureRange(5, 5)
    assert not parse_range("5").is_wide
    with pytest.raises(ValueError, match="the lower figure first"):
        parse_range("500-350")


def test_gpus_are_understood_in_any_spelling() -> None:
    assert parse_gpu_config("4x RTX 4090").count == 4
    assert parse_gpu_config("4× a100 sxm4 80gb").gpus == ("A100 SXM 80GB",)
    assert parse_gpu_config("H100").count is None
    assert "H100 PCIe" in parse_gpu_config("H100").gpus


@pytest.mark.parametrize("text", ["", "4x", "0x H100", "4x NoSuchCard", "123456x H100"])
def test_gpus_that_nobody_knows_are_reported(text: str) -> None:
    with pytest.raises(ValueError, match="expected GPUs such as"):
        parse_gpu_config(text)


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(ValueError, match="did you mean"):
        parse_gpu_config("4x H1000")


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1.0), ("1k", 1e3), ("1M", 1e6), ("1B", 1e9), ("1G", 1e9), ("1T", 1e12)]
)
def test_a_suffix_is_a_power_of_a_thousand(text: str, value: float) -> None:
    assert parse_figure(text) == value
