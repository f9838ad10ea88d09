"""Figures as people write them."""

from __future__ import annotations

import pytest

from gpuwatch.planning.figures import Range, config, figure, figures


@pytest.mark.parametrize(
    ("text", "value"), [("70B", 70e9), ("1.5t", 1.5e12), ("500M", 5e8), ("10 k", 1e4), ("7", 7.0), (7e9, 7e9)]
)
def test_a_figure_may_end_in_its_size(text: str | float, value: float) -> None:
    assert figure(text) == value


@pytest.mark.parametrize(
    "text", ["", "B", "-1", "1e400", "0", "70BB", "seven", "1_000", 0.0, 5e-324, float("nan"), float("inf")]
)
def test_what_is_no_figure_says_what_was_expected(text: str | float) -> None:
    with pytest.raises(ValueError, match="expected a number above 0"):
        figure(text)


def test_a_range_is_two_figures() -> None:
    assert figures("350-500") == Range(350, 500)
    assert figures("5") == figures(5) == Range(5, 5)
    assert not figures("5").is_wide
    with pytest.raises(ValueError, match="the lower figure first"):
        figures("500-350")


def test_gpus_are_understood_in_any_spelling() -> None:
    assert config("4x RTX 4090").count == 4
    assert config("4× a100 sxm4 80gb").gpus == ("A100 SXM 80GB",)
    assert config("H100").count is None
    assert "H100 PCIe" in config("H100").gpus


@pytest.mark.parametrize("text", ["", "4x", "0x H100", "4x NoSuchCard", "12345x H100"])
def test_gpus_that_nobody_knows_are_told(text: str) -> None:
    with pytest.raises(ValueError, match="expected GPUs such as"):
        config(text)


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(ValueError, match="did you mean"):
        config("4x H1000")
