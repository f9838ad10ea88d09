"""After a failed start at stock, another place or another offer comes first; the same place only after a rest."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.launches.launch import new_launch as launch_of
from gpuwatch.domain.launches.life.admission import AdmissionState, admit_launch
from gpuwatch.domain.launches.life.circuit_breaker import CircuitBreaker
from gpuwatch.domain.market.offer import OfferTerms
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_match, a_watch, an_offer, changed

MINUTE = timedelta(minutes=1)
STOCK = OfferTerms(fungible=True)
WATCH = a_watch(action=Action.LAUNCH, launch=LaunchSpec(), max_price_usd_gpu_hour=Decimal(5))


def at(place: str, usd_hour: float = 2.0, **changes: Any) -> Match:
    """A match for stock of a place."""
    plain = {"provider": "verda", "offer_id": place, "machine_id": place, "quoted_usd_hour": usd_hour, "terms": STOCK}
    return a_match(an_offer(**(plain | changes)))


FIN_01, FIN_02, FIN_03 = at("FIN-01"), at("FIN-02"), at("FIN-03", 3.0)


def failed(match: Match, minutes_ago: float, end: EndReason = EndReason.BROKEN, **changes: Any) -> Launch:
    first = launch_of(Intent(watch=WATCH, match=match, launch_id="b" * 12, dry_run=False), 0, NOON - 9 * MINUTE)
    ended = {"state": LaunchState.FAILED, "ended_at": NOON - minutes_ago * MINUTE, "end_reason": end.text("its words")}
    return changed(first, instance_id="1", **(ended | changes))  # type: ignore[no-any-return]


def rented(
    *matches: Match, known: tuple[Launch, ...] = (), now: datetime = NOON, breaker: CircuitBreaker | None = None
) -> str | LaunchRefusal:
    """The place that is ordered first, or why none is."""
    intent = Intent(watch=WATCH, match=matches[0], launch_id="a" * 12, dry_run=False, alternatives=matches[1:])
    state = AdmissionState(known=lambda: known, total=lambda: 0, avoided=lambda known: {}, breaker=breaker)
    got = admit_launch(intent, state, Budget(), now)
    return got if isinstance(got, LaunchRefusal) else got[0].offer_id


@pytest.mark.parametrize(
    "end",
    [EndReason.BROKEN, EndReason.NOT_READY, EndReason.NO_CAPACITY, EndReason.NO_SSH, EndReason.BID_LOST],
)
def test_after_a_failed_start_another_place_comes_first(end: EndReason) -> None:
    assert rented(FIN_01, FIN_02) == "FIN-01"
    assert rented(FIN_01, FIN_02, known=(failed(FIN_01, 0.1, end),)) == "FIN-02"
    assert rented(FIN_01, FIN_02, known=(failed(FIN_02, 0.1, end),)) == "FIN-01"


def test_a_dearer_offer_under_the_threshold_and_another_provider_come_first_too() -> None:
    assert rented(FIN_01, FIN_03, known=(failed(FIN_01, 1),)) == "FIN-03"
    elsewhere = at("9", 4.0, provider="vastai", terms=OfferTerms())
    assert rented(FIN_01, elsewhere, known=(failed(FIN_01, 1),)) == "9"


def test_a_third_place_does_not_wait_for_failures_at_two_others() -> None:
    assert rented(FIN_01, FIN_02, FIN_03, known=(failed(FIN_01, 0.2), failed(FIN_02, 0.1))) == "FIN-03"


def test_failures_of_another_watch_count_for_the_order() -> None:
    assert rented(FIN_01, FIN_02, known=(failed(FIN_01, 1, watch="other"),)) == "FIN-02"


@pytest.mark.parametrize("end", [EndReason.CRASHED, EndReason.OFFERS_GONE, EndReason.BUDGET])
def test_what_the_place_did_not_cause_changes_nothing(end: EndReason) -> None:
    assert rented(FIN_01, FIN_02, known=(failed(FIN_01, 1, end),)) == "FIN-01"


def test_after_an_hour_it_comes_first_again() -> None:
    assert rented(FIN_01, FIN_02, known=(failed(FIN_01, 59),)) == "FIN-02"
    assert rented(FIN_01, FIN_02, known=(failed(FIN_01, 60),)) == "FIN-01"


def test_resume_forgives() -> None:
    resumed = CircuitBreaker(watch=WATCH.name, at=NOON, until=NOON)
    assert rented(FIN_01, FIN_02, known=(failed(FIN_01, 1),), breaker=resumed) == "FIN-01"


def test_the_only_place_is_tried_again_at_growing_intervals() -> None:
    assert rented(FIN_01, known=(failed(FIN_01, 0),)) == "FIN-01"
    twice = failed(FIN_01, 1), failed(FIN_01, 0)
    refused = rented(FIN_01, known=twice)
    assert isinstance(refused, LaunchRefusal)
    assert refused.reason is RefusalReason.COOLING
    assert rented(FIN_01, known=twice, now=NOON + MINUTE / 2) == "FIN-01"


def test_a_place_whose_machines_fail_again_and_again_is_tried_once_an_hour() -> None:
    """Each start that fails may be billed until `ready_within`."""
    thrice = tuple(failed(FIN_01, ago, EndReason.NOT_READY) for ago in (600, 120, 5))
    refused = rented(FIN_01, known=thrice)
    assert isinstance(refused, LaunchRefusal)
    assert "FIN-01 within a day; the next attempt there is at 12:55:00 UTC" in refused.text
    assert rented(FIN_01, FIN_02, known=thrice) == "FIN-02"
    assert rented(FIN_01, known=thrice, now=NOON + 55 * MINUTE) == "FIN-01"
    gone = tuple(failed(FIN_01, ago, EndReason.NO_CAPACITY) for ago in (600, 120, 5))  # nothing was billed
    assert rented(FIN_01, known=gone) == "FIN-01"


def test_failures_of_one_machine_do_not_concern_this_rule() -> None:
    """A machine that failed is avoided for a day by the rules of machines."""
    one = at("9", provider="vastai", terms=OfferTerms())
    assert rented(one, FIN_02, known=(failed(one, 1),)) == "9"
