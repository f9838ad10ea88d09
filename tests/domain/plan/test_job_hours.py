"""The duration of a job on given hardware: from hours, speed-ups, rates and data sheets."""

from __future__ import annotations

import msgspec
import pytest

from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.plan.figures import exactly, parse_gpu_config
from gpuwatch.domain.plan.job_hours import Decoding, GpuRate, JobHours, JobSpec, hours_on
from gpuwatch.domain.plan.job_total import inference_flop, training_flop

A100, H100 = "4x A100 SXM 80GB", "4x H100 SXM"
THREE_DAYS = JobSpec(hours=exactly(72.0), on=parse_gpu_config(A100))


def hours(job: JobSpec, gpu: str, count: int) -> float | str:
    found = hours_on(job, gpu, count)
    return found.value.high if isinstance(found, JobHours) else found


def test_hours_scale_with_the_cards() -> None:
    assert hours(THREE_DAYS, "A100 SXM 80GB", 8) == 36.0
    assert hours(THREE_DAYS, "A100 SXM 80GB", 1) == 288.0
    less = JobSpec(hours=exactly(72.0), on=parse_gpu_config(A100), scaling=0.5)
    assert hours(less, "A100 SXM 80GB", 8) == pytest.approx(72 * 2.5 / 4.5)


def test_a_speed_up_without_a_count_is_card_by_card() -> None:
    each = JobSpec(
        hours=exactly(72.0), on=parse_gpu_config(A100), speedup=(GpuRate(parse_gpu_config("H100"), exactly(2.5)),)
    )
    assert hours(each, "H100 SXM", 4) == pytest.approx(72 / 2.5)
    assert hours(each, "H100 SXM", 1) == pytest.approx(4 * 72 / 2.5)
    four = JobSpec(
        hours=exactly(72.0), on=parse_gpu_config(A100), speedup=(GpuRate(parse_gpu_config(H100), exactly(2.5)),)
    )
    assert hours(four, "H100 SXM", 4) == pytest.approx(72 / 2.5)


def test_flops_count_only_where_a_utilisation_is_said() -> None:
    assert "utilisation" in str(hours(THREE_DAYS, "H100 SXM", 4))
    by_sheet = JobSpec(hours=exactly(72.0), on=parse_gpu_config(A100), utilisation=exactly(0.4))
    assert hours(by_sheet, "H100 SXM", 4) == pytest.approx(72 * 312 / 989.4)


def test_six_operations_a_weight_and_token() -> None:
    """Kaplan et al. (2020); 7e9 × 1e9 × 6 = 4.2e19; at 40 % of 312 TFLOP/s that are 93.5 hours."""
    job = JobSpec(tokens=1e9, flop=training_flop(7e9, 1e9, full=True), utilisation=exactly(0.4))
    assert hours(job, "A100 SXM 80GB", 1) == pytest.approx(4.2e19 / (0.4 * 312e12) / 3600)
    assert training_flop(7e9, 1e9, full=False) == pytest.approx(2.8e19)
    assert inference_flop(7e9, 1e9) == pytest.approx(1.4e19)


def test_the_figure_of_the_nearest_count_counts() -> None:
    job = JobSpec(
        tokens=1e6,
        tokens_per_s=(
            GpuRate(parse_gpu_config("1x H100"), exactly(100)),
            GpuRate(parse_gpu_config("8x H100"), exactly(700)),
        ),
    )
    assert hours(job, "H100 SXM", 8) == pytest.approx(1e6 / 700 / 3600)
    assert hours(job, "H100 SXM", 2) == pytest.approx(1e6 / 200 / 3600)


def test_a_card_without_a_data_sheet_is_reported() -> None:
    job = JobSpec(tokens=1e9, flop=1e18, utilisation=exactly(0.4))
    assert "no data sheet" in str(hours(job, "Tesla K20c", 1))
    assert hours(job, "V100 32GB", 1) == pytest.approx(1e18 / (0.4 * 112e12) / 3600)  # the slower of the two it may be


def test_cards_before_ampere_do_not_compute_in_bf16() -> None:
    job = JobSpec(tokens=1e9, flop=1e18, utilisation=exactly(0.4), bf16=True)
    assert hours(job, "V100 32GB", 1) == "V100 32GB does not support bf16 (it supports fp16)"
    assert isinstance(hours(job, "A100 SXM 80GB", 1), float)
    by_sheet = JobSpec(hours=exactly(72.0), on=parse_gpu_config(A100), utilisation=exactly(0.4), bf16=True)
    assert "bf16" in str(hours(by_sheet, "T4", 1))


def test_cards_without_fp8_do_not_train_in_it_and_only_store_weights_in_it() -> None:
    """Transformer Engine refuses such cards; vLLM reads weights in fp8 and computes in 16 bits."""
    by_share = JobSpec(tokens=1e9, flop=1e18, utilisation=exactly(0.4), fp8=True)
    reads = Decoding(read_gb=8.0, batch=8, flop_per_token=1.6e10)
    without = [name for name, card in gpu_specs().items() if card.fp8_tflops is None]
    assert {"V100 SXM2 32GB", "T4", "A100 SXM 80GB", "RTX 3090"} <= set(without)
    for name in without:
        assert str(hours(by_share, name, 1)).startswith(f"{name} cannot train in fp8"), name
    for name in ("H100 SXM", "L40S", "RTX 4090", "MI300X"):
        assert isinstance(hours(by_share, name, 1), float), name
    by_sheet = JobSpec(hours=exactly(72.0), on=parse_gpu_config(H100), utilisation=exactly(0.4), fp8=True)
    assert "cannot train in fp8" in str(hours(by_sheet, "A100 SXM 80GB", 1))
    for name, computes_in_16 in (("A100 SXM 80GB", True), ("H100 SXM", False)):
        found = hours_on(msgspec.structs.replace(by_share, decoding=reads), name, 1)
        assert isinstance(found, JobHours)
        assert ("arithmetic in 16 bits" in found.how) is computes_in_16
