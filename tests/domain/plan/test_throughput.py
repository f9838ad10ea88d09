"""Speeds from published measurements: the nearest row, scaled by the roofline model, with an honest range."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.plan_error import LEAST_WITHIN_3, MOST_MEDIAN, plan_error
from gpuwatch.app.plan.speed_table import parse_throughput, throughput_table
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.roofline import SpeedTask, WorkMethod, has_fast_link, roofline_tokens_s
from gpuwatch.domain.plan.throughput import estimate_speed, leave_one_out, plain_attention_share, share_of, speed_of
from gpuwatch.domain.plan.workload import Workload

TABLE = throughput_table()
SEVENTY = SpeedTask(
    method=WorkMethod.QLORA,
    params=70e9,
    active_params=70e9,
    layers=80,
    hidden=8192,
    kv_width=1024,
    weight_bytes=0.516,
    batch=4,
)
EIGHT = msgspec.structs.replace(SEVENTY, params=8e9, active_params=8e9, layers=32, hidden=4096)
SERVED = msgspec.structs.replace(EIGHT, method=WorkMethod.DECODE, weight_bytes=2.0, batch=1)


def speed(task: SpeedTask, gpu: str, count: int, nvlink: bool | None = None) -> FigureRange:
    found = estimate_speed(TABLE, task, gpu_specs()[gpu], count, nvlink)
    assert found is not None
    return found.tokens_per_s


def test_every_row_names_its_source_and_a_gpu_of_the_catalogue() -> None:
    assert len(TABLE.rows) >= 40
    for row in TABLE.rows:
        assert row.url.startswith("https://") or row.url.startswith("the articles"), row.text
        assert row.gpu in gpu_specs(), row.text
        assert share_of(row) is not None, row.text
    assert {row.task.method for row in TABLE.rows} == set(WorkMethod)


def test_no_training_row_is_above_what_the_data_sheet_allows() -> None:
    training = [row for row in TABLE.rows if row.task.method.trains]
    assert [row.text for row in training if (share_of(row) or 0) > 0.75] == []


def test_left_out_rows_are_estimated_within_the_target() -> None:
    whole = next(error for left_out, method, error in plan_error(TABLE) if (left_out, method) == ("the row", "all"))
    assert whole.rows == len(TABLE.rows)
    assert whole.median <= MOST_MEDIAN
    assert whole.within_3 >= LEAST_WITHIN_3


def test_a_job_that_was_measured_has_the_range_that_was_measured() -> None:
    assert speed(SEVENTY, "H100 SXM", 2) == pytest.approx((350, 500))
    assert speed(SEVENTY, "RTX 4090", 4) == pytest.approx((120, 180))


def test_no_row_estimates_itself() -> None:
    """The articles' 70B on two H100 is far slower than others measured: without it, it cannot be estimated."""
    (left_out,) = [one for one in leave_one_out(TABLE) if one.row.tokens_per_s == (350, 500)]
    assert left_out.ratio > 3


def test_cards_without_nvlink_pay_for_the_link() -> None:
    four = gpu_specs()["A100 SXM 80GB"]
    small = msgspec.structs.replace(EIGHT, method=WorkMethod.FULL, weight_bytes=2.0, batch=4, context=512)
    assert roofline_tokens_s(small, four, 4, nvlink=False) < (roofline_tokens_s(small, four, 4, nvlink=True) or 0) / 3  # type: ignore[operator]
    assert speed(small, "A100 SXM 80GB", 4, nvlink=False).high < speed(small, "A100 SXM 80GB", 4, nvlink=True).low
    assert not has_fast_link(gpu_specs()["RTX 4090"])
    assert has_fast_link(gpu_specs()["RTX 4090"], stated=True)


def test_writing_is_bound_by_bandwidth_until_the_batch_is_large() -> None:
    card = gpu_specs()["H100 SXM"]
    one, many, most, more = (
        roofline_tokens_s(msgspec.structs.replace(SERVED, batch=batch, context=256), card, 1, nvlink=True) or 0.0
        for batch in (1, 32, 4096, 8192)
    )
    assert one == pytest.approx(3350 / 16, rel=0.01)  # 16 GB of weights for each token
    assert 25 * one < many < 32 * one
    assert most == more == pytest.approx(989.4e12 / 16e9, rel=0.01)  # two operations a weight


def test_a_job_unlike_any_that_was_measured_has_a_wider_range() -> None:
    near, far = speed(SEVENTY, "H100 SXM", 4), speed(EIGHT, "MI300X", 8)
    assert far.high / far.low > near.high / near.low


def test_without_rows_the_roofline_alone_bounds_it() -> None:
    table = parse_throughput({"models": {}, "publication": []})
    found = estimate_speed(table, SEVENTY, gpu_specs()["H100 SXM"], 2)
    assert found is not None
    assert found.rows == ()
    assert "roofline alone" in found.how


def test_a_card_whose_data_sheet_says_too_little_has_no_speed() -> None:
    bare = msgspec.structs.replace(gpu_specs()["H100 SXM"], bandwidth_gb_s=None)
    assert estimate_speed(TABLE, SEVENTY, bare, 1) is None


@pytest.mark.parametrize("gpu", ["A100 SXM 80GB", "H100 SXM", "RTX 4090"])
@pytest.mark.parametrize("params", [1e9, 7e9])
def test_mixed_precision_is_two_to_three_times_as_fast_as_32_bits(gpu: str, params: float) -> None:
    """The published rule of thumb, on cards since Ampere, whose 32-bit matrices run in TF32."""
    sixteen = msgspec.structs.replace(
        SEVENTY, method=WorkMethod.FULL, params=params, active_params=params, layers=24, hidden=2048, weight_bytes=2.0
    )
    thirty_two = msgspec.structs.replace(sixteen, weight_bytes=4.0, fp32=True)
    fast, slow = speed(sixteen, gpu, 1), speed(thirty_two, gpu, 1)
    assert 2.0 <= ((fast.low * fast.high) / (slow.low * slow.high)) ** 0.5 <= 3.0


def test_training_without_flash_attention_is_as_slow_as_measured() -> None:
    assert plain_attention_share(2048) == pytest.approx((142 / 196, 149 / 205))
    assert plain_attention_share(8192) == plain_attention_share(100_000) == pytest.approx((72 / 220, 80 / 225))
    assert plain_attention_share(1) == plain_attention_share(512) == pytest.approx((1 / 1.15, 1 / 1.15))
    shares = [plain_attention_share(context).high for context in (512, 1024, 2048, 4096, 8192)]
    assert shares == sorted(shares, reverse=True)


def test_kernels_and_checkpointing_change_the_time_of_training_and_flash_attention_not_that_of_inference() -> None:
    def middle(**keys: object) -> float:
        work = Workload(model="8B", context=8192, **keys)  # type: ignore[arg-type]
        found = speed_of(work, TABLE).on("H100 SXM", 8)
        assert found is not None
        return found.middle

    plain = middle(fused_attention=False)
    assert plain / middle() == pytest.approx((72 / 220 * 80 / 225) ** 0.5)
    assert middle(recompute=False) / middle() == pytest.approx(1.25)
    assert middle(method="inference", fused_attention=False) == middle(method="inference")
