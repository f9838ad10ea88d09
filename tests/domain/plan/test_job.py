"""The cost of a job: the sources' exact figures, and the mean of simulated costs."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gpuwatch.domain.market.money import Commission, price_of
from gpuwatch.domain.market.offer import OfferKind, OfferTerms
from gpuwatch.domain.plan.figures import FigureRange, exactly, parse_gpu_config
from gpuwatch.domain.plan.job_comparison import (
    ComparedHardware,
    HardwareExtras,
    PlannedHardware,
    compare_hardware,
    parse_hardware,
    rank_offers,
)
from gpuwatch.domain.plan.job_hours import GpuRate, JobHours, JobSpec, hours_on
from gpuwatch.domain.plan.job_total import (
    JobCost,
    JobTraffic,
    PricedGpus,
    cost_on,
    load_usd,
)
from tests.builders import an_offer, changed

A100, H100 = "4x A100 SXM 80GB", "4x H100 SXM"
THREE_DAYS = JobSpec(hours=exactly(72.0), on=parse_gpu_config(A100))
NO_TRAFFIC = JobTraffic()


def a_stage(**changes: Any) -> PricedGpus:
    plain: dict[str, Any] = {"gpu": "A100 SXM 80GB", "count": 4, "memory_gib": 80.0, "microusd_hour": 4_800_000}
    return PricedGpus(**(plain | changes))


def costs(job: JobSpec, priced_gpus: PricedGpus, traffic: JobTraffic = NO_TRAFFIC) -> JobCost:
    found = cost_on(job, priced_gpus, traffic)
    assert isinstance(found, JobCost), found
    return found


def both(
    job: JobSpec = THREE_DAYS, commission: str = "0", h100: str = f"{H100} @ 3.50"
) -> tuple[ComparedHardware, ComparedHardware]:
    asked = [parse_hardware(f"{A100} @ 1.20"), parse_hardware(h100)]
    first, second = compare_hardware(job, asked, NO_TRAFFIC, HardwareExtras(commission=Decimal(commission)))
    return first, second


def faster(by: float) -> JobSpec:
    return JobSpec(
        hours=exactly(72.0), on=parse_gpu_config(A100), speedup=(GpuRate(parse_gpu_config(H100), exactly(by)),)
    )


def test_the_sources_job_on_a100_and_h100() -> None:
    a100, h100 = both(h100=f"{H100} @ 3.50 for 24h")
    assert (a100.cost.microusd, h100.cost.microusd) == (345_600_000, 336_000_000)
    assert a100.cost.microusd - h100.cost.microusd == 9_600_000
    assert h100.break_even == pytest.approx(14.00 / 4.80)
    assert round(h100.break_even, 4) == 2.9167


@pytest.mark.parametrize(("speedup", "usd"), [(2.5, 403.20), (2.0, 504.00), (1.5, 672.00), (3.0, 336.00)])
def test_the_same_at_other_speed_ups(speedup: float, usd: float) -> None:
    _, h100 = both(faster(speedup))
    assert h100.cost.microusd == round(usd * 1e6)
    assert h100.speed == FigureRange(speedup, speedup)


def test_at_the_break_even_both_cost_the_same() -> None:
    a100, h100 = both(faster(both(faster(2.0))[1].break_even))
    assert h100.cost.microusd == pytest.approx(a100.cost.microusd, abs=1)


def test_with_twenty_percent_on_top() -> None:
    a100, h100 = both(commission="0.20", h100=f"{H100} @ 3.50 for 24h")
    assert (a100.cost.microusd, h100.cost.microusd) == (414_720_000, 403_200_000)
    assert a100.cost.microusd - h100.cost.microusd == 11_520_000


def test_the_hyperscalers_price() -> None:
    asked = [parse_hardware("1x H100 @ 8.00 for 72h"), parse_hardware("4x H100 @ 8.00 for 72h")]
    one, four = compare_hardware(JobSpec(), asked, NO_TRAFFIC, HardwareExtras())
    assert (one.cost.microusd, four.cost.microusd) == (576_000_000, 2_304_000_000)


def test_a_load_costs_1_33_to_1_87_and_the_sources_2_33_is_at_another_price() -> None:
    """The text states 4.00 a card and prints 2.33 for 7 minutes, and 23.30 for ten: that is 5.00 a card."""
    low, high = load_usd(4, 4.00, FigureRange(300, 420))
    assert (round(low, 2), round(high, 2)) == (1.33, 1.87)
    assert (round(10 * low, 2), round(10 * high, 2)) == (13.33, 18.67)
    seed = load_usd(4, 5.00, FigureRange(300, 420)).high
    assert round(seed, 2) == 2.33
    assert round(10 * round(seed, 2), 2) == 23.30


def test_measured_ranges_make_a_range_of_cost() -> None:
    """4 RTX 4090 do 120–180 tokens a second, 2 H100 350–500."""
    job = JobSpec(
        tokens=10e6,
        tokens_per_s=(
            GpuRate(parse_gpu_config("4x RTX 4090"), FigureRange(120, 180)),
            GpuRate(parse_gpu_config("2x H100"), FigureRange(350, 500)),
        ),
    )
    slow = costs(job, a_stage(gpu="RTX 4090", count=4, microusd_hour=1_600_000))
    assert slow.high.work_h == pytest.approx(10e6 / 120 / 3600)
    assert slow.low.work_h == pytest.approx(10e6 / 180 / 3600)
    assert slow.low.microusd < slow.high.microusd == slow.microusd
    quick = costs(job, a_stage(gpu="H100 SXM", count=2, microusd_hour=7_000_000))
    assert quick.high.work_h == pytest.approx(10e6 / 350 / 3600)


def test_an_interruption_never_loses_more_than_between_two_checkpoints() -> None:
    """Half an hour at 16 $ an hour: at most 8.00."""
    for per_day in (0.01, 1, 24, 200):
        job = JobSpec(hours=exactly(0.5), checkpoint_s=1800, interruptions_per_day=per_day)
        bill = costs(job, a_stage(microusd_hour=16_000_000, can_be_interrupted=True)).high
        lost = bill.lost_h / bill.interruptions
        assert 0 < lost <= 0.5
        assert lost * 16 <= 8.00
        if per_day < 1:
            assert lost == pytest.approx(0.25, rel=1e-3)  # on average, half of it


@given(st.floats(0.01, 200), st.floats(0.02, 24), st.floats(0, 48), st.floats(0, 1))
@example(1.0, 0.125, 2.2250738585e-313, 0.0)
def test_interruptions_only_ever_add(work_h: float, checkpoint_h: float, per_day: float, load_h: float) -> None:
    job = JobSpec(
        hours=exactly(work_h),
        checkpoint_s=checkpoint_h * 3600,
        interruptions_per_day=per_day,
        load_s=exactly(load_h * 3600),
    )
    spot = cost_on(job, a_stage(can_be_interrupted=True), NO_TRAFFIC)
    assume(isinstance(spot, JobCost))
    assert isinstance(spot, JobCost)
    steady = costs(job, a_stage())
    bill = spot.high
    rounding_h = 1e-9 + 1e-8 * work_h  # two nearly equal numbers of hours are subtracted
    assert bill.lost_h <= bill.interruptions * min(checkpoint_h, work_h) * (1 + 1e-9) + rounding_h
    assert bill.restart_h >= bill.interruptions * load_h * (1 - 1e-9)
    assert bill.microusd >= steady.high.microusd
    assert steady.high.interruptions == 0


def simulated_h(rng: random.Random, work_h: float, stretch_h: float, start_h: float, per_hour: float) -> float:
    """One run with random interruptions while it starts and works; checkpoints are free."""
    passed, done, left_h, starting = 0.0, 0.0, rng.expovariate(per_hour), True
    first = True
    while done < work_h:
        target = start_h if starting else min(stretch_h, work_h - done)
        if first and starting:
            passed, starting, first = passed + target, False, False  # the first start counts completely
            continue
        if left_h < target:
            passed, starting = passed + left_h, True
            left_h = rng.expovariate(per_hour)
            continue
        passed, left_h = passed + target, left_h - target
        if starting:
            starting = False
        else:
            done += target
    return passed


@pytest.mark.parametrize(("per_day", "checkpoint_h", "start_h"), [(6, 0.5, 0.2), (24, 1.0, 0.1), (12, 3.0, 0.5)])
def test_the_mean_is_that_of_a_simulation(per_day: float, checkpoint_h: float, start_h: float) -> None:
    work_h, rng = 20.0, random.Random(1)
    runs = [simulated_h(rng, work_h, checkpoint_h, start_h, per_day / 24) for _ in range(4_000)]
    job = JobSpec(
        hours=exactly(work_h),
        checkpoint_s=checkpoint_h * 3600,
        interruptions_per_day=per_day,
        load_s=exactly(start_h * 3600),
    )
    computed = costs(job, a_stage(can_be_interrupted=True)).high.hours
    assert sum(runs) / len(runs) == pytest.approx(computed, rel=0.02)


def test_what_is_interrupted_too_often_is_never_done() -> None:
    job = JobSpec(hours=exactly(500.0), interruptions_per_day=10)  # no checkpoint: all of it is lost each time
    refused = cost_on(job, a_stage(can_be_interrupted=True), NO_TRAFFIC)
    assert isinstance(refused, str)
    assert "never finish" in refused
    assert isinstance(cost_on(job, a_stage(), NO_TRAFFIC), JobCost)


def test_restarts_from_zero_have_a_mean_or_a_reason() -> None:
    """The mean is (e^(rate × hours) - 1) / rate; where one of a hundred tries or fewer succeeds it is no plan."""
    daily = changed(JobSpec(hours=exactly(24.0)), restarts_per_day=4.6)
    assert costs(daily, a_stage()).high.hours == pytest.approx(math.expm1(4.6) / (4.6 / 24))
    often = cost_on(changed(daily, restarts_per_day=10.0), a_stage(), NO_TRAFFIC)
    assert often == (
        "it would practically never finish: 24 h without a restart come once in 22,026 tries or more,"
        " and each restart loses all work; set checkpoint_every"
    )
    assert isinstance(
        cost_on(changed(daily, restarts_per_day=10.0, checkpoint_s=1_800.0), a_stage(), NO_TRAFFIC), JobCost
    )
    wide = cost_on(changed(daily, restarts_per_day=1e9, checkpoint_s=1_800.0), a_stage(), NO_TRAFFIC)
    assert str(wide).endswith("0.5 h without a restart come once in 1,000,000,000 tries or more,"
                              " and checkpoints are that far apart; lower checkpoint_every")  # fmt: skip
    slow = changed(daily, restarts_per_day=48.0, checkpoint_s=60.0, load_s=exactly(36_000.0))
    assert str(cost_on(slow, a_stage(), NO_TRAFFIC)).endswith("or more, and a start takes that long")
    uncertain = changed(daily, hours=FigureRange(1.0, 500.0))
    assert "500 h without" in str(cost_on(uncertain, a_stage(), NO_TRAFFIC))


@given(
    st.one_of(st.floats(1e-300, 1e18), st.floats(0.01, 1e4)),
    st.floats(0, 1e9),
    st.one_of(st.none(), st.floats(1, 1e9)),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    st.floats(0, 10**9),
)
def test_no_figure_that_can_be_written_breaks_it(
    hours: float, per_day: float, checkpoint_s: float | None, load_s: float, gb: float, min_billing_s: float
) -> None:
    job = JobSpec(
        hours=exactly(hours),
        interruptions_per_day=per_day,
        checkpoint_s=checkpoint_s,
        load_s=exactly(load_s),
        image_gb=gb,
    )
    priced_gpus = a_stage(can_be_interrupted=True, download_mbps=0.001, min_billing_s=min_billing_s)
    for one in (priced_gpus, a_stage(billing_step_s=0.5)):
        found = cost_on(job, one, JobTraffic(gb, gb))
        assert isinstance(found, str) or found.microusd >= 0


def test_getting_ready_is_part_of_it() -> None:
    job = JobSpec(
        hours=exactly(1.0),
        setup_s=exactly(600.0),
        load_s=FigureRange(300.0, 420.0),
        image_gb=9.0,
        download_mbps=100.0,
    )
    found = costs(job, a_stage(download_mbps=200.0), JobTraffic(download_gb=81.0))
    pull_h = 90 * 8000 / 200 / 3600  # the offer's own speed counts, if known
    assert found.high.ready_h == pytest.approx(600 / 3600 + 420 / 3600 + pull_h)
    assert found.low.ready_h == pytest.approx(600 / 3600 + 300 / 3600 + pull_h)
    slower = costs(job, a_stage(), JobTraffic(download_gb=81.0))
    assert slower.high.ready_h - found.high.ready_h == pytest.approx(pull_h)


def test_the_least_that_is_billed_and_whole_steps() -> None:
    short = JobSpec(hours=exactly(0.1))
    assert costs(short, a_stage(min_billing_s=3600.0)).microusd == 4_800_000
    assert costs(short, a_stage(billing_step_s=900.0)).microusd == 1_200_000
    assert costs(THREE_DAYS, a_stage(min_billing_s=3600.0, billing_step_s=3600.0)).microusd == 345_600_000


def test_traffic_is_paid_by_the_gigabyte() -> None:
    job = JobSpec(hours=exactly(1.0), image_gb=10.0)
    found = costs(job, a_stage(download_usd_gb=0.02, upload_usd_gb=0.05), JobTraffic(100.0, 40.0))
    assert found.high.traffic_usd == pytest.approx(110 * 0.02 + 40 * 0.05)
    assert found.microusd == 4_800_000 + round(found.high.traffic_usd * 1e6)


def test_what_nobody_says_is_reported_and_not_guessed() -> None:
    found = costs(JobSpec(hours=exactly(1.0)), a_stage(), JobTraffic(100.0, 40.0))
    assert found.microusd == 4_800_000
    assert found.unknown == ("download time", "download cost", "upload cost")


def test_what_does_not_hold_the_model_is_refused() -> None:
    job = JobSpec(hours=exactly(1.0), memory_gb=140.0)
    assert isinstance(cost_on(job, a_stage(count=2), NO_TRAFFIC), JobCost)
    assert cost_on(job, a_stage(count=1), NO_TRAFFIC) == "1 × 80 GiB do not hold 140 GB"
    assert "is unknown" in str(cost_on(job, a_stage(memory_gib=None), NO_TRAFFIC))


def test_what_takes_too_long_is_refused() -> None:
    job = JobSpec(hours=exactly(72.0), on=parse_gpu_config(A100), load_s=exactly(3600.0), within_s=73 * 3600.0)
    assert isinstance(cost_on(job, a_stage(), NO_TRAFFIC), JobCost)
    assert cost_on(job, a_stage(count=2), NO_TRAFFIC) == "it takes longer than 73 h"


@pytest.mark.parametrize(
    "text",
    [
        "4x A100",
        "4x A100 @ 0",
        "@ 1.2",
        "4x A100 @ 1.2 for 0h",
        "4x A100 @ 1.2 for 5h-3h",
        "x @ 1",
        "",
        "4x A100 @ 1.2 for 1.2.3h",
    ],
)
def test_a_candidate_that_makes_no_sense_says_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_hardware(text)


def test_a_candidate_may_have_a_range_of_hours() -> None:
    found = parse_hardware("4x RTX 4090 @ 0.40 for 18h-24h")
    assert isinstance(found, PlannedHardware)
    assert (found.count, found.hours) == (4, FigureRange(18, 24))


def test_offers_are_ranked_by_the_job_and_not_by_the_hour() -> None:
    """H100 at 3.50 against A100 at 1.20: a higher hourly price, but cheaper for work that is three times as fast."""
    offers = [
        an_offer(offer_id="a", gpu="A100 SXM 80GB", gpu_count=4, quoted_usd_hour=4.8),
        an_offer(offer_id="h", gpu="H100 SXM", gpu_count=4, quoted_usd_hour=14.0),
        an_offer(offer_id="k", gpu="RTX 3090", gpu_count=4, quoted_usd_hour=0.8),
        an_offer(offer_id="s", gpu="H100 SXM", gpu_count=4, quoted_usd_hour=1.0, terms=OfferTerms(gpu_fraction=0.5)),
        an_offer(offer_id="p", gpu="H100 SXM", gpu_count=4, quoted_usd_hour=1.0, terms=OfferTerms(prepaid=True)),
        an_offer(offer_id="o", gpu="H100 SXM", gpu_count=4, quoted_usd_hour=1.0, kind=OfferKind.HISTORY),
    ]
    found = rank_offers(faster(3.0), [(offer, price_of(offer, None, Commission())) for offer in offers], NO_TRAFFIC)
    assert [one.offer.offer_id for one in found.placed] == ["h", "a"]
    assert found.seen == 6
    assert {count for _, count in found.refused} == {1}


def test_an_offer_without_enough_free_disk_is_refused_by_that_reason() -> None:
    offers = [an_offer(gpu="H100 SXM", disk_free_gb=free) for free in (99.0, 100.0, None)]
    priced = [(offer, price_of(offer, 100.0, Commission())) for offer in offers]
    ranking = rank_offers(JobSpec(hours=exactly(1.0)), priced, NO_TRAFFIC, 100.0)
    assert ranking.refused == (("less than 100 GB of free disk", 1),)
    assert len(ranking.placed) == 2


def test_named_hardware_is_priced_as_an_offer_with_its_disk_and_commission() -> None:
    extras = HardwareExtras(commission=Decimal("0.25"), disk_usd_hour=Decimal("0.10"))
    [found] = compare_hardware(JobSpec(hours=exactly(1.0)), [parse_hardware("H100 SXM @ 2.00")], NO_TRAFFIC, extras)
    assert (found.candidate.count, found.priced_gpus.memory_gib) == (1, 80.0)
    assert (found.priced_gpus.microusd_hour, found.priced_gpus.disk_microusd_hour) == (2_625_000, 125_000.0)
    assert not found.priced_gpus.can_be_interrupted


def test_bf16_refuses_older_cards_only() -> None:
    job = JobSpec(hours=exactly(1.0), on=parse_gpu_config("H100 SXM"), utilisation=exactly(0.4), bf16=True)
    assert isinstance(hours_on(job, "A100 SXM 80GB", 1), JobHours)
    assert hours_on(job, "V100 SXM2 16GB", 1) == "V100 SXM2 16GB does not support bf16 (it supports fp16)"


def test_what_no_data_sheet_says_is_named() -> None:
    job = JobSpec(flop=1e18, tokens=1e9, utilisation=exactly(0.4))
    assert hours_on(job, "Tesla X9000", 1) == "no data sheet lists the FLOP/s of Tesla X9000"
    eight = changed(job, fp8=True)
    assert hours_on(eight, "Tesla X9000", 1) == "no data sheet lists the FLOP/s of Tesla X9000 in 8 bits"


def test_the_disks_part_of_a_cost_is_what_it_bills_for_all_hours() -> None:
    bill = costs(THREE_DAYS, a_stage(disk_microusd_hour=500_000.0, min_billing_s=100 * 3600.0)).high
    assert bill.minimum_h > 0
    assert bill.disk_usd == pytest.approx(50.0)


def test_no_traffic_costs_nothing_at_any_price() -> None:
    assert costs(THREE_DAYS, a_stage(download_usd_gb=1.0, upload_usd_gb=1.0)).high.traffic_usd == 0.0


def test_minutes_of_a_candidate_are_explained() -> None:
    with pytest.raises(ValueError, match=r"hours only: 0\.0833h"):
        parse_hardware("4x A100 @ 1.20 for 5m")


def test_a_job_may_restart_itself_on_a_machine_that_nobody_takes() -> None:
    """An own restart repeats work and loads again; it pulls nothing, and the machine is billed as one run."""
    plain = JobSpec(hours=exactly(72.0), load_s=exactly(360.0), image_gb=10.0, download_mbps=8_000 / 360)
    own = changed(plain, restarts_per_day=2.0, checkpoint_s=1_800.0)
    stage = a_stage(min_billing_s=3_600.0, download_usd_gb=0.01)
    bill = costs(own, stage).high
    assert bill.interruptions == pytest.approx(6, rel=0.05)
    assert bill.restart_h == pytest.approx(bill.interruptions * 0.1, rel=0.01)
    assert bill.lost_h < bill.interruptions * 0.5
    assert bill.traffic_usd == pytest.approx(0.1)
    assert costs(changed(own, reload_s=exactly(36.0)), stage).high.restart_h == pytest.approx(bill.restart_h / 10, 0.01)
    taken = changed(plain, interruptions_per_day=2.0, checkpoint_s=1_800.0, image_gb=0.0)
    assert costs(taken, a_stage(can_be_interrupted=True)) == costs(changed(own, image_gb=0.0), a_stage())


def test_preparation_and_debugging_are_a_share_of_the_cost() -> None:
    job = changed(THREE_DAYS, prepare_usd=exactly(100.0), debug_h=50.0)
    bill = costs(job, a_stage()).high
    assert bill.microusd == round((100 + (72 + 50) * 4.80) * 1_000_000)
    assert bill.hours == 72
    assert bill.preparation_share == pytest.approx(340 / 685.6)
    assert costs(THREE_DAYS, a_stage()).high.preparation_share is None
