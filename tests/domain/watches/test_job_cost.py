"""A watch by the cost of its whole job: what it accepts, in which order, when it fires."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.domain.market.money import Commission, threshold_microusd
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.plan.figures import FigureRange, exactly, parse_gpu_config
from gpuwatch.domain.plan.job_hours import GpuRate, JobSpec
from gpuwatch.domain.plan.job_total import JobCost
from gpuwatch.domain.watches.computed_limits import ceiling_microusd, job_cost, most_bid_microusd, most_microusd
from gpuwatch.domain.watches.decide import DecisionReason, Observation, WatchMemory, decide
from gpuwatch.domain.watches.launch_spec import BidSpec, LaunchSpec
from gpuwatch.domain.watches.match import accepts, failures, is_near, matches, price_for
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.domain.watches.watch_job_schema import highest_usd_gpu_hour
from gpuwatch.engine.market.watch_search import queries_for
from tests.builders import NOON, a_watch, an_offer, changed
from tests.drawn import examples

VAST = {"vastai": Commission("0.20")}
FREE: dict[str, Commission] = {}
GPUS = ("A100 SXM 80GB", "H100 SXM", "RTX 4090")
JOB = JobSpec(
    hours=exactly(72.0),
    on=parse_gpu_config("4x A100 SXM 80GB"),
    speedup=(GpuRate(parse_gpu_config("4x H100 SXM"), exactly(3.0)),),
)


def a_job_watch(most: str = "350", job: JobSpec = JOB, **changes: Any) -> Watch:
    counts = range(changes.get("gpu_count_min", 1), changes.get("gpu_count_max", 8) + 1)
    plain: dict[str, Any] = {
        "name": "tune",
        "gpu": GPUS,
        "gpu_names": GPUS,
        "gpu_count_min": 1,
        "gpu_count_max": 8,
        "max_job_cost_usd": Decimal(most),
        "job": job,
        "max_price_usd_gpu_hour": highest_usd_gpu_hour(job, Decimal(most), GPUS, counts),
    }
    return a_watch(**(plain | changes))


def a100(usd_hour: float = 4.80, **changes: Any) -> Offer:
    return an_offer(
        **({"gpu": "A100 SXM 80GB", "gpu_count": 4, "quoted_usd_hour": usd_hour, "offer_id": "a"} | changes)
    )


def h100(usd_hour: float = 14.00, **changes: Any) -> Offer:
    return an_offer(**({"gpu": "H100 SXM", "gpu_count": 4, "quoted_usd_hour": usd_hour, "offer_id": "h"} | changes))


def ids(watch: Watch, *offers: Offer) -> list[str]:
    return [match.offer.offer_id for match in matches(watch, offers, FREE, NOON)]


def test_the_threshold_is_inclusive_and_exact() -> None:
    """4 × A100 at 1.20 for 72 h are 345.60."""
    assert ids(a_job_watch("345.60"), a100(4.80)) == ["a"]
    assert ids(a_job_watch("345.60"), a100(4.800001)) == []
    assert ids(a_job_watch("345.599999"), a100(4.80)) == []


def test_with_commission_it_is_the_price_that_counts() -> None:
    assert len(matches(a_job_watch("414.72"), [a100(4.80)], VAST, NOON)) == 1
    assert matches(a_job_watch("414.71"), [a100(4.80)], VAST, NOON) == ()


def test_the_cheapest_job_comes_first_though_its_hour_is_dearer() -> None:
    found = matches(a_job_watch(), [a100(4.80), h100(14.00)], FREE, NOON)
    assert [match.job_microusd for match in found] == [336_000_000, 345_600_000]
    assert found[0].price_microusd_gpu_hour > found[1].price_microusd_gpu_hour


def test_a_gpu_whose_pace_nobody_said_is_never_taken_and_reported() -> None:
    offer = an_offer(gpu="RTX 4090", gpu_count=4, quoted_usd_hour=0.10)
    watch = a_job_watch()
    assert ids(watch, offer) == []
    (failure,) = failures(watch, offer, price_for(watch, offer, FREE), NOON)
    assert failure.text == "job: neither a speedup of RTX 4090 nor a utilisation is set"


def test_what_is_too_dear_says_by_how_much_and_only_once() -> None:
    watch, offer = a_job_watch("300"), a100(4.80)
    (failure,) = failures(watch, offer, price_for(watch, offer, FREE), NOON)
    assert failure.clause == "max_job_cost"
    assert failure.text == "max_job_cost: 345.60 > 300.00"
    assert failure.off == pytest.approx(0.152)


def test_a_job_that_does_not_fit_into_memory_is_refused() -> None:
    watch = a_job_watch(job=msgspec.structs.replace(JOB, memory_gb=140.0))
    assert ids(watch, a100(), h100(3.0, gpu_count=1)) == ["a"]


def test_a_job_that_would_take_too_long_is_refused() -> None:
    watch = a_job_watch(job=msgspec.structs.replace(JOB, within_s=30 * 3600.0))
    assert ids(watch, a100(), h100()) == ["h"]


def test_the_worst_of_a_range_is_what_counts() -> None:
    watch = a_job_watch(job=msgspec.structs.replace(JOB, hours=FigureRange(60.0, 72.0)), most="345")
    assert ids(watch, a100(4.80)) == []
    assert ids(watch, a100(4.79)) == ["a"]


def test_traffic_of_the_watch_is_part_of_it() -> None:
    watch = a_job_watch("345.60", download_gb=100.0)
    assert ids(watch, a100(4.80, download_usd_gb=0.0, download_mbps=1e6)) == []  # … its time is
    roomy = a_job_watch("350", download_gb=100.0)
    assert ids(roomy, a100(4.80, download_usd_gb=0.01, download_mbps=1000.0)) == ["a"]
    assert ids(roomy, a100(4.80, download_usd_gb=0.05, download_mbps=1000.0)) == []


def test_interruptions_make_a_spot_offer_dearer() -> None:
    often = msgspec.structs.replace(JOB, interruptions_per_day=24.0, checkpoint_s=3600.0)
    watch = a_job_watch(job=often, spot=SpotPolicy.ANY)
    assert ids(watch, a100(4.80), a100(4.80, spot=True, offer_id="s")) == ["a"]
    assert ids(watch, a100(4.80), a100(2.40, spot=True, offer_id="s")) == ["s", "a"]


def test_near_is_within_rearm_of_the_jobs_limit() -> None:
    watch = a_job_watch("340", rearm=1.05)
    assert is_near(watch, [a100(4.80)], FREE, NOON)
    assert not is_near(watch, [a100(5.20)], FREE, NOON)


def look(watch: Watch, *offers: Offer) -> Observation:
    found = matches(watch, offers, FREE, NOON)
    return Observation(matches=found, known=True, near=bool(found), observed_at=NOON)


def test_it_is_reported_again_when_the_job_gets_cheaper_and_not_the_hour() -> None:
    watch = a_job_watch()
    first = decide(watch, look(watch, a100(4.80)), WatchMemory(), NOON)
    assert first.reason is DecisionReason.FIRST_MATCH
    assert first.memory.fired_microusd_gpu_hour == 345_600_000
    # dearer an hour, 9 % cheaper for the job
    cheaper = decide(watch, look(watch, a100(4.80), h100(13.00)), first.memory, NOON + timedelta(minutes=1))
    assert cheaper.reason is DecisionReason.CHEAPER
    # cheaper an hour, on fewer cards: the job costs as much as before
    same = decide(watch, look(watch, a100(1.20, gpu_count=1)), first.memory, NOON + timedelta(minutes=1))
    assert same.reason is DecisionReason.NOTHING_NEW


def test_the_question_to_the_market_is_bounded_by_what_could_be_worth_it() -> None:
    """The H100 may cost 350 ÷ (24 h × 4) per GPU, which limits the list price, without the commission."""
    watch = a_job_watch("350", gpu_count_min=4, gpu_count_max=4)
    (query,) = queries_for(watch, Commission("0.20"))
    assert query.max_listed_usd_hour == pytest.approx(350 / 24 / 1.2, rel=1e-6)


def test_a_running_instance_may_cost_what_its_own_gpu_is_worth() -> None:
    watch = a_job_watch("345.60")
    assert ceiling_microusd(watch, "A100 SXM 80GB", 4) == 4_800_000
    assert ceiling_microusd(watch, "H100 SXM", 4) == 14_400_000
    assert ceiling_microusd(watch, "RTX 4090", 4) == 0
    by_price = a_watch()
    assert ceiling_microusd(by_price, "H100 SXM", 2) == threshold_microusd(by_price.max_price_usd_gpu_hour, 2)


def test_a_raised_price_is_held_against_all_hours_of_the_job_not_its_work_alone() -> None:
    """With 36 h of preparation, and repeated work on a spot machine, less is left for each hour."""
    job = changed(JOB, setup_s=exactly(36 * 3600.0), interruptions_per_day=2.0, checkpoint_s=3600.0)
    watch = a_job_watch("345.60", job)
    assert ceiling_microusd(watch, "A100 SXM 80GB", 4) == 3_200_000
    assert ceiling_microusd(watch, "A100 SXM 80GB", 4, spot=True) < 3_150_000
    never = changed(watch, job=changed(job, interruptions_per_day=1e6, checkpoint_s=None))
    assert ceiling_microusd(never, "A100 SXM 80GB", 4, spot=True) == 0


def test_a_watch_by_price_has_no_job() -> None:
    assert job_cost(a_watch(), an_offer(), price_for(a_watch(), an_offer(), FREE)) is None
    assert matches(a_watch(), [an_offer()], FREE, NOON)[0].job_microusd is None


@given(st.floats(1e-300, 1e18), st.floats(0.000001, 1e6))
def test_any_job_has_a_ceiling(length_h: float, most: float) -> None:
    job = JobSpec(hours=exactly(length_h))
    highest = highest_usd_gpu_hour(job, Decimal(repr(most)), GPUS, range(1, 9))
    assert 0 <= highest <= 10_000


JOBS = st.builds(
    lambda low, more, load_s, memory_gb, scaling: JobSpec(
        hours=FigureRange(low, low + more),
        on=parse_gpu_config("4x A100 SXM 80GB"),
        speedup=(
            GpuRate(parse_gpu_config("H100 SXM"), FigureRange(2.0, 2.5)),
            GpuRate(parse_gpu_config("8x H100 SXM"), exactly(3.0)),
        ),
        load_s=exactly(load_s),
        memory_gb=memory_gb,
        scaling=scaling,
        interruptions_per_day=2.0,
        checkpoint_s=1800.0,
    ),
    st.floats(0.1, 100),
    st.sampled_from([0.0, 10.0]),
    st.sampled_from([0.0, 300.0]),
    st.sampled_from([0.0, 100.0]),
    st.sampled_from([1.0, 0.8]),
)
OFFERS = st.builds(
    an_offer,
    offer_id=st.sampled_from("1234567"),
    gpu=st.sampled_from(GPUS),
    gpu_count=st.sampled_from([1, 2, 4, 8]),
    spot=st.booleans(),
    quoted_usd_hour=st.floats(0.01, 60),
    quoted_disk_gb=st.sampled_from([8.0, 2_000.0]),
    disk_usd_gb_month=st.sampled_from([None, 0.2]),
)
WATCHES = st.builds(
    a_job_watch,
    st.sampled_from(["5", "60.25", "350", "2000"]),
    JOBS,
    spot=st.sampled_from(SpotPolicy),
    disk_gb=st.sampled_from([None, 500.0]),
)


@settings(max_examples=examples(150))
@given(WATCHES, OFFERS)
def test_the_ceiling_never_keeps_out_what_is_worth_it(watch: Watch, offer: Offer) -> None:
    """Without the price limit exactly the same offers are accepted."""
    unbounded = changed(watch, max_price_usd_gpu_hour=Decimal(10**6))
    price = price_for(watch, offer, VAST)
    assert accepts(watch, offer, price, NOON) == accepts(unbounded, offer, price, NOON)
    cost = job_cost(watch, offer, price)
    if isinstance(cost, JobCost) and cost.microusd <= most_microusd(watch):
        assert price.price_microusd_hour <= ceiling_microusd(watch, offer.gpu, offer.gpu_count, spot=offer.spot)


def test_only_an_interruptible_offer_is_bid_for() -> None:
    bid = BidSpec(max_usd_gpu_hour=Decimal(5))
    bids = a_watch(spot=SpotPolicy.ANY, launch=LaunchSpec(bid=bid))
    for spot, most in ((True, 5_000_000), (False, 0)):
        offer = an_offer(spot=spot)
        assert most_bid_microusd(bids, offer, price_for(bids, offer, VAST)) == most
