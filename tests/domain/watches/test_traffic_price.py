"""The traffic of a launch in the price of a watch: one figure wherever it is compared or shown; the rent is billed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.app.market.offers import match_view
from gpuwatch.domain.forecasts.backtest.replayed_offers import replayed_offer, without_unrecorded_clauses
from gpuwatch.domain.history.market_history import OfferInterval
from gpuwatch.domain.launches.launch import most_microusd_hour, offer_fields
from gpuwatch.domain.launches.life.launch_events import rent_ceiling_microusd
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.choice import is_by_gpu_price
from gpuwatch.domain.watches.launch_spec import BidSpec, LaunchSpec
from gpuwatch.domain.watches.match import failures, match_of, matches, price_for
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.launches.renting.requoter import payable_match
from tests.builders import NOON, a_listing, a_watch, an_offer
from tests.domain.launches.guard_values import a_running_launch

VAST = {"vastai": Commission("0.20")}
DAY_S = 86_400.0


def a_moving_watch(down: float = 240.0, up: float = 0.0, runtime_s: float | None = DAY_S, **changes: Any) -> Watch:
    """A watch whose launches run for a day, and download 240 GB."""
    launch = LaunchSpec(image="train", max_runtime_s=runtime_s)
    return a_watch(**{"action": Action.LAUNCH, "launch": launch, "download_gb": down, "upload_gb": up} | changes)


def test_the_price_contains_the_traffic_spread_over_the_runtime() -> None:
    price = price_for(a_moving_watch(up=24.0), an_offer(download_usd_gb=0.01, upload_usd_gb=0.02), VAST)
    assert price.traffic_microusd_hour == 120_000  # (240 × 0.01 + 24 × 0.02) / 24 h
    assert (price.listed_microusd_hour, price.rent_microusd_hour) == (3_000_000, 3_600_000)
    assert price.price_microusd_hour == 3_720_000


def test_an_offer_is_over_the_limit_because_of_its_traffic_and_says_so() -> None:
    offer = an_offer(download_usd_gb=0.01)
    assert matches(a_moving_watch(0.0), [offer], VAST, NOON)
    assert not matches(a_moving_watch(), [offer], VAST, NOON)
    found = failures(a_moving_watch(), offer, price_for(a_moving_watch(), offer, VAST), NOON)
    assert [failure.text for failure in found] == ["max_price: 3.70 > 3.60 (traffic 0.10 of it)"]


def test_the_cheaper_rent_comes_second_if_its_traffic_is_dearer() -> None:
    near = an_offer(offer_id="near", machine_id="1", quoted_usd_hour=2.0, download_usd_gb=0.05)
    far = an_offer(offer_id="far", machine_id="2", quoted_usd_hour=2.1, download_usd_gb=0.0)
    assert [one.offer.offer_id for one in matches(a_moving_watch(), [near, far], VAST, NOON)] == ["far", "near"]
    assert is_by_gpu_price(a_moving_watch(0.0))
    assert not is_by_gpu_price(a_moving_watch())  # so that a page cut off by the provider proves nothing


RATES = st.one_of(st.none(), st.floats(0, 0.2))
GB = st.one_of(st.just(0.0), st.floats(0, 1e5))


@given(down=GB, up=GB, rates=st.tuples(RATES, RATES), count=st.integers(1, 8), hours=st.floats(0.1, 1e4))
def test_traffic_only_adds_and_the_store_and_the_market_show_the_same_figure(
    down: float, up: float, rates: tuple[float | None, float | None], count: int, hours: float
) -> None:
    watch = a_moving_watch(down, up, hours * 3600)
    facts = {"gpu_count": count, "download_usd_gb": rates[0], "upload_usd_gb": rates[1]}
    offer = an_offer(**facts, disk_usd_gb_month=None)
    price, plain = price_for(watch, offer, VAST), price_for(a_moving_watch(0.0), offer, VAST)
    assert price.price_microusd_hour >= plain.price_microusd_hour == price.rent_microusd_hour
    if not down and not up:
        assert price == plain
    # what the store keeps of it is whole micro-dollars per GB
    kept = {name: None if usd is None else round(usd * 1e6) / 1e6 for name, usd in facts.items() if "usd" in name}
    stored = replayed_offer(a_listing(**{**facts, **kept}), OfferInterval(0, 0, 0, None, 3_000_000, None), 8.0)
    assert price_for(watch, stored, VAST) == price
    # every face: the match, its JSON, and what is paid after the last quote
    match = match_of(watch, offer, price)
    shown = json.loads(msgspec.json.encode(match_view(match, watch.traffic)))
    assert shown["price_usd_hour"] == price.price_microusd_hour / 1e6
    assert payable_match(match, watch, VAST["vastai"]) == match
    assert msgspec.convert(msgspec.to_builtins(match), type(match)) == match  # as an approval keeps it
    # the ledger: what an hour is billed, to which the traffic by the GB is added once
    fields = offer_fields(match, watch)
    assert fields["price_microusd_hour"] == fields["most_microusd_hour"] == plain.price_microusd_hour


def test_without_a_runtime_the_price_has_no_traffic() -> None:
    offer = an_offer(download_usd_gb=0.01)
    assert price_for(a_moving_watch(runtime_s=None), offer, VAST).traffic_microusd_hour == 0
    assert price_for(a_watch(download_gb=240.0), offer, VAST).traffic_microusd_hour == 0


def test_the_cost_of_a_job_contains_its_traffic_already() -> None:
    watch = a_moving_watch(max_job_cost_usd=Decimal(100))
    assert price_for(watch, an_offer(download_usd_gb=0.01), VAST).traffic_microusd_hour == 0


def test_an_unknown_rate_is_named_and_is_not_zero() -> None:
    watch, offer = a_moving_watch(up=24.0), an_offer(upload_usd_gb=0.02)
    assert watch.traffic is not None
    assert watch.traffic.unpriced(offer) == ("download",)
    view = match_view(match_of(watch, offer, price_for(watch, offer, VAST)), watch.traffic)
    assert (view.traffic_usd_hour, view.traffic_unknown) == (0.02, ("download",))
    silent = an_offer()
    view = match_view(match_of(watch, silent, price_for(watch, silent, VAST)), watch.traffic)
    assert (view.traffic_usd_hour, view.traffic_unknown) == (None, ("download", "upload"))


def test_a_history_without_rates_is_judged_by_the_rent_and_names_what_it_left_out() -> None:
    watch = a_moving_watch(up=1.0)
    rule, ignored = without_unrecorded_clauses(watch, [a_listing(download_usd_gb=0.01)])
    assert ignored == ("upload_gb",)
    assert (rule.download_gb, rule.upload_gb) == (240.0, 0.0)


def test_the_limit_of_what_is_billed_is_the_threshold_without_the_traffic() -> None:
    watch = a_moving_watch(max_price_usd_gpu_hour=Decimal("3.70"))
    offer = an_offer(download_usd_gb=0.01)
    launch = a_running_launch(**offer_fields(match_of(watch, offer, price_for(watch, offer, VAST)), watch))
    assert rent_ceiling_microusd(watch, launch) == 3_600_000
    assert rent_ceiling_microusd(a_moving_watch(0.0), launch) == 3_600_000


def test_a_bid_is_compared_with_its_own_limit_which_contains_no_traffic() -> None:
    offer = an_offer(spot=True, quoted_usd_hour=2.0, min_bid_usd_hour=2.5, disk_usd_gb_month=None, download_usd_gb=0.1)
    watch = a_moving_watch(launch=LaunchSpec(image="train", max_runtime_s=DAY_S))
    match = match_of(watch, offer, price_for(watch, offer, VAST))
    assert payable_match(match, watch, VAST["vastai"]) is None  # 3.00 to bid, and 1.00 of traffic, over 3.60
    bids = msgspec.structs.replace(
        watch, launch=LaunchSpec(image="train", max_runtime_s=DAY_S, bid=BidSpec(max_usd_gpu_hour=Decimal("3.00")))
    )
    paid = payable_match(match, bids, VAST["vastai"])
    assert paid is not None
    assert (paid.price.rent_microusd_hour, paid.price.traffic_microusd_hour) == (3_000_000, 1_000_000)
    assert most_microusd_hour(paid, bids) == 3_000_000
