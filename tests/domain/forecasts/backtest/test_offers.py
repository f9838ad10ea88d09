"""The history's data as offers, and clauses that it cannot judge."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.forecasts.backtest.replayed_candidates import NEVER_S, find_candidates
from gpuwatch.domain.forecasts.backtest.replayed_offers import replayed_offer, without_unrecorded_clauses
from gpuwatch.domain.history.market_history import OfferInterval
from gpuwatch.domain.market.money import Commission, price_of
from gpuwatch.domain.market.offer import Verification
from gpuwatch.domain.watches.match import matches
from gpuwatch.domain.watches.watch import Action, CpuArch
from gpuwatch.storage.history.recording.answer_changes import price_parts
from tests.builders import a_listing, an_offer
from tests.domain.forecasts.backtest.replayed_market import a_rule, history_of

LISTING = a_listing(offer_id="1")
CENTS = st.integers(10, 900_000_000).map(lambda micro: micro / 1e6)


@given(CENTS, st.sampled_from([None, 8.0, 100.0, 1000.0]), st.sampled_from([None, 0.05, 0.1, 0.2, 0.15, 1.0]))
def test_an_offer_that_was_stored_costs_what_it_cost(usd: float, disk_gb: float | None, rate: float | None) -> None:
    live = an_offer(quoted_usd_hour=usd + (rate or 0) * 8 / 720, disk_usd_gb_month=rate, quoted_disk_gb=8.0)
    machine, disk = price_parts(live)
    stored = replayed_offer(LISTING, OfferInterval(0, 0, 0, None, machine, disk), 8.0)
    ours, theirs = (price_of(offer, disk_gb, Commission("0.20")) for offer in (stored, live))
    # the machine's price alone is kept, rounded to a whole micro-dollar
    assert ours.price_microusd_hour == pytest.approx(theirs.price_microusd_hour, abs=2)


def test_a_price_of_whole_cents_is_exact() -> None:
    interval = OfferInterval(0, 0, 0, None, 3_000_000, None)
    assert price_of(replayed_offer(LISTING, interval, 8.0), 100.0, Commission("0.20")).price_microusd_hour == 3_600_000


def test_a_machine_without_a_name_is_one_of_a_stock() -> None:
    nameless = msgspec.structs.replace(LISTING, provider="runpod", machine_id="offer:H100")
    offer = replayed_offer(nameless, OfferInterval(0, 0, 0, None, 1, None), 8.0)
    assert (offer.machine_id, offer.terms.fungible) == (None, True)
    assert replayed_offer(LISTING, OfferInterval(0, 0, 0, None, 1, None), 8.0).terms.fungible is False


def test_keys_of_price_rows_tell_offers_apart() -> None:
    keys = ("a2-highgpu-1g/us-central1/spot", "a2-highgpu-1g/europe-west4/spot")
    rows = [a_listing(key, provider="gcp", gpu="A100 SXM 40GB", spot=True, offer_id="a2-highgpu-1g") for key in keys]
    assert {replayed_offer(row, OfferInterval(0, 0, 0, None, 1, None), 8.0).offer_id for row in rows} == set(keys)
    assert replayed_offer(LISTING, OfferInterval(0, 0, 0, None, 1, None), 8.0).offer_id == "1"


def test_clauses_that_no_history_keeps_are_left_out_and_named() -> None:
    watch = a_rule(min_cuda=12.4, nvlink=True, available_for_s=3600.0, cpu_arch=CpuArch.ARM64, datacenter=False)
    judged, ignored = without_unrecorded_clauses(watch, [LISTING])
    assert ignored == ("min_cuda", "nvlink", "available_for", "cpu_arch")
    assert (judged.min_cuda, judged.nvlink, judged.available_for_s, judged.cpu_arch) == (None, None, None, CpuArch.ANY)


def test_what_compares_with_the_history_is_left_out_and_named() -> None:
    watch = a_rule(new_low_s=2_592_000.0, drop_by=0.2, percentile=5.0, restock=True)
    judged, ignored = without_unrecorded_clauses(watch, [LISTING])
    assert ignored == ("new_low", "drop_by", "percentile", "restock")
    assert (judged.new_low_s, judged.drop_by, judged.restock) == (None, None, False)


def test_a_condition_on_what_nobody_recorded_is_left_out_and_named() -> None:
    """It would be unknown for every offer, and the replay would report that it never fires."""
    watch = a_rule(when="reliability >= 0.98", any_of=("gpu_count == 1", "verified"), max_usd_gib_hour=Decimal("0.04"))
    judged, ignored = without_unrecorded_clauses(watch, [LISTING])
    assert ignored == ("usd_per_gib_hour", "when", "any")
    assert (judged.when, judged.any_of, judged.max_usd_gib_hour) == (None, (), None)
    said = msgspec.structs.replace(LISTING, reliability=0.9, verification=Verification.VERIFIED, gpu_memory_gib=80.0)
    assert without_unrecorded_clauses(watch, [LISTING, said]) == (watch, ())
    plain = a_rule(when="gpu_count == 1 and gpu_price <= 3")
    assert without_unrecorded_clauses(plain, [LISTING]) == (plain, ())


def test_what_somebody_recorded_is_judged_as_it_is_live() -> None:
    watch = a_rule(min_reliability=0.98, verified=True, regions=("US",), min_vram_gib=79.0)
    assert without_unrecorded_clauses(watch, [LISTING])[1] == ("min_vram_gib", "min_reliability", "verified", "regions")
    said = msgspec.structs.replace(
        LISTING, reliability=0.9, verification=Verification.VERIFIED, country="US", gpu_memory_gib=80.0
    )
    assert without_unrecorded_clauses(watch, [LISTING, said]) == (watch, ())
    other = msgspec.structs.replace(said, gpu="A40")
    assert len(without_unrecorded_clauses(watch, [LISTING, other])[1]) == 4, "what is said of other GPUs does not count"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.5, 1.0, 2.0, 2.000001, 2.1])), max_size=6),
    st.sampled_from([1.0, 1.05, 1.5]),
)
def test_what_is_accepted_is_what_the_watch_accepts(prices: list[tuple[str, float]], rearm: float) -> None:
    market_history = history_of([(at * 60, {machine: price}) for at, (machine, price) in enumerate(prices)])
    watch = a_rule(2.0, rearm=rearm, action=Action.LAUNCH)
    found = find_candidates(watch, market_history, {}, 8.0)
    columns = [row for query in found.by_query.values() for row in zip(*query, strict=True)]
    assert len(columns) == len(market_history.intervals)
    for (from_s, ended_s, near, place), interval in zip(columns, market_history.intervals, strict=True):
        offer = replayed_offer(market_history.listings[interval.listing], interval, 8.0)
        is_accepted = bool(matches(watch, [offer], {}, offer.observed_at))
        assert (from_s, ended_s) == (interval.from_s, interval.ended_s or NEVER_S)
        assert near == pytest.approx(interval.machine_microusd_hour, abs=1)
        if place < 0:
            assert interval.machine_microusd_hour > float(Decimal("2.0") * Decimal(repr(rearm))) * 1e6
            assert not is_accepted
        else:
            candidate = found.match(place)
            assert candidate.match.offer == offer
            assert candidate.accepted is is_accepted
