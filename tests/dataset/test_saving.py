"""Saved hours are proportional to tokens; dollars follow from a price."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset.saving import TrainingPrice, TrainingWork, training_saving
from gpuwatch.errors import UsageError

TWO = TrainingPrice(usd_gpu_hour=2.0, source="as said")


def test_hours_that_are_said_are_saved_in_proportion() -> None:
    """The sources' filter: 20 of 50 GB stay."""
    found = training_saving(50_000, 30_000, TrainingWork(gpu_hours=100), None, TWO)
    assert (found.share, found.gpu_hours_saved, found.saved_usd) == (0.6, 60.0, 120.0)


def test_hours_by_tokens_a_second() -> None:
    found = training_saving(36_000_000, 18_000_000, TrainingWork(tokens_per_s=1000, epochs=3), None, TWO)
    assert (found.gpu_hours_whole, found.gpu_hours_saved, found.saved_usd) == (30.0, 15.0, 30.0)


@pytest.mark.parametrize(("lora", "factor"), [(False, 6), (True, 4)])
def test_hours_by_the_size_of_the_model(lora: bool, factor: int) -> None:
    """6 (LoRA: 4) FLOP a weight and token; an H100 SXM does 989.4 TFLOP/s dense, by its data sheet."""
    found = training_saving(10**9, 10**8, TrainingWork(params=7e9, lora=lora, utilisation=0.4), "H100 SXM", TWO)
    whole = factor * 7e9 * 1e9 / (989.4e12 * 0.4) / 3600
    assert found.gpu_hours_whole == pytest.approx(whole)
    assert found.saved_usd == pytest.approx(whole * 0.1 * 2)


def test_without_a_word_about_the_work_only_the_share_is_known() -> None:
    found = training_saving(10, 5, TrainingWork(), "H100 SXM", TWO)
    assert (found.share, found.gpu_hours_saved, found.saved_usd) == (0.5, None, None)
    assert found.how == "GPU-hours unknown: pass --gpu-hours, --tokens-per-s, or --params with --gpu"
    assert training_saving(10, 5, TrainingWork(gpu_hours=1), None, None).saved_usd is None


def test_a_gpu_without_a_data_sheet_is_reported() -> None:
    with pytest.raises(UsageError, match="no data sheet lists the FLOP/s of Q9000"):
        training_saving(10, 5, TrainingWork(params=7e9), "Q9000", None)


@given(tokens=st.integers(0, 10**15), data=st.data())
def test_nothing_is_saved_beyond_the_whole(tokens: int, data: st.DataObject) -> None:
    removed = data.draw(st.integers(0, tokens))
    found = training_saving(tokens, removed, TrainingWork(tokens_per_s=100), None, TWO)
    assert found.gpu_hours_saved is not None
    assert found.gpu_hours_whole is not None
    assert 0 <= found.gpu_hours_saved <= found.gpu_hours_whole * (1 + 1e-12)
