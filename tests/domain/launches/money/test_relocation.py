"""Whether moving pays: by the remaining cost, with a second set-up and everything billed anyway."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpuwatch.domain.launches.launch import Launch, LaunchState, Promise
from gpuwatch.domain.launches.money.bids_and_relocation import relocation
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.job_hours import JobSpec
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import LaunchSpec, RelocateSpec
from gpuwatch.domain.watches.match import price_for
from tests.builders import NOON, a_match, a_watch, an_offer, changed, seen_at
from tests.domain.launches.guard_values import a_running_launch

WATCH = a_watch(relocate=RelocateSpec(min_saving=0.15, after_s=7200.0))
AFTER_2H = NOON + timedelta(hours=2)


def launch(**changes: Any) -> Launch:
    """At 4 $/h since noon, ordered six minutes before; at two o'clock ten hours are left."""
    return a_running_launch(
        **{"max_runtime_s": 12 * 3600.0, "requested_at": NOON - timedelta(minutes=6), "offer_id": "1"} | changes
    )


def quote(usd_hour: float, **changes: Any) -> Match:
    """An offer with its total cost; no disk, no commission."""
    offer = an_offer(
        **{"offer_id": "2", "machine_id": "2", "quoted_usd_hour": usd_hour, "provider": "runpod"} | changes
    )
    return seen_at(a_match(changed(offer, disk_usd_gb_month=None), commission="0"), AFTER_2H)


def test_the_saving_is_what_is_left_after_a_second_set_up() -> None:
    """Ten hours at 4 $ against ten hours and six minutes at 3 $."""
    found = relocation(launch(), WATCH, [quote(3.5), quote(3.0)], AFTER_2H)
    assert found is not None
    assert (found.cost_here_microusd, found.cost_there_microusd) == (40_000_000, 30_300_000)
    assert (found.saving_microusd, round(found.share, 4)) == (9_700_000, 0.2425)
    assert found.work.setup == timedelta(minutes=6)


@pytest.mark.parametrize(("usd_hour", "pays"), [(3.36, True), (3.37, False), (4.0, False), (9.0, False)])
def test_it_pays_from_min_saving_on(usd_hour: float, pays: bool) -> None:
    """85 % of 40 $ for 10.1 h are 3.366 $/h."""
    assert (relocation(launch(), WATCH, [quote(usd_hour)], AFTER_2H) is not None) is pays


def test_a_started_hour_is_paid_here_and_a_minimum_there() -> None:
    """Half of a started hour is left: staying costs nothing more, whatever is on offer."""
    begun = launch(max_runtime_s=3 * 3600.0, promised=Promise(billing_step_s=3 * 3600.0))
    assert relocation(begun, WATCH, [quote(0.5)], AFTER_2H) is None
    dear = changed(quote(2.0), price=changed(quote(2.0).price, min_billing_s=24 * 3600.0))
    assert relocation(launch(), WATCH, [dear], AFTER_2H) is None, "48 $ are more than 40 $"


def test_traffic_is_counted_once_on_both_sides_and_never_as_rent() -> None:
    """Ten hours at 4 $ and 50 GB up at 2 ct; there 10.1 h at 3.50 $, 100 GB down and 50 GB up at 1 ct."""
    gb = {"download_gb": 100.0, "upload_gb": 50.0}
    begun = launch(promised=Promise(download_usd_gb=0.02, upload_usd_gb=0.02, **gb))
    watch = changed(WATCH, **gb, launch=LaunchSpec(max_runtime_s=12 * 3600.0), relocate=RelocateSpec(min_saving=0.1))
    offer = changed(quote(3.5).offer, download_usd_gb=0.01, upload_usd_gb=0.01)
    there = changed(quote(3.5), offer=offer, price=price_for(watch, offer, {}))
    assert there.price.price_microusd_hour == 3_625_000, "1.50 $ over 12 h are in the compared price"
    found = relocation(begun, watch, [there], AFTER_2H)
    assert found is not None
    assert (found.cost_here_microusd, found.cost_there_microusd) == (41_000_000, 36_850_000)
    assert found.work.assumed == ("the new machine is as fast as this one", "its set-up takes as long")
    unknown = relocation(begun, watch, [quote(3.0, download_usd_gb=None, upload_usd_gb=0.01)], AFTER_2H)
    assert unknown is not None
    assert unknown.work.assumed[-1] == "the price of its download there is unknown"


def test_the_set_up_of_the_watchs_job_is_done_again() -> None:
    job = JobSpec(setup_s=FigureRange(600.0, 3600.0), load_s=FigureRange(60.0, 240.0))
    found = relocation(launch(), changed(WATCH, job=job), [quote(2.0)], AFTER_2H)
    assert found is not None
    assert found.work.setup == timedelta(minutes=6 + 60 + 4)


def test_without_an_end_a_day_is_assumed_and_said() -> None:
    found = relocation(launch(max_runtime_s=None), WATCH, [quote(3.0)], AFTER_2H)
    assert found is not None
    assert found.cost_here_microusd == 96_000_000
    assert "24 h" in found.work.assumed[-1]


@pytest.mark.parametrize("changes", [{"gpu": "H100 PCIe"}, {"gpu_count": 2}, {"spot": True, "min_bid_usd_hour": 0.5}])
def test_only_the_same_hardware_is_compared(changes: dict[str, Any]) -> None:
    assert relocation(launch(), WATCH, [quote(1.0, **changes)], AFTER_2H) is None


def test_an_old_quote_is_no_finding() -> None:
    old = seen_at(quote(1.0), AFTER_2H - timedelta(minutes=11))
    assert relocation(launch(), WATCH, [old], AFTER_2H) is None


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [({}, 7199), ({"state": LaunchState.STARTING}, 7200), ({"dry_run": True}, 7200), ({"max_runtime_s": 7200.0}, 7200)],
)
def test_nothing_is_found_before_its_time_or_after_its_end(changes: dict[str, Any], seconds: int) -> None:
    now = NOON + timedelta(seconds=seconds)
    assert relocation(launch(**changes), WATCH, [seen_at(quote(1.0), now)], now) is None


def test_without_relocate_nothing_is_compared() -> None:
    assert relocation(launch(), changed(WATCH, relocate=None), [quote(1.0)], AFTER_2H) is None
