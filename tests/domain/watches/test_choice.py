"""Which of the accepted offers comes first: ties, and a watch's preferences."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from gpuwatch.domain.market.offer import OfferTerms, Verification
from gpuwatch.domain.watches.choice import best_first, compare, tie_of
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action, Prefer, Watch
from tests.builders import a_match, a_watch, an_offer

RENTS = a_watch(action=Action.LAUNCH, launch=LaunchSpec())


def offer(name: str, usd_hour: float, count: int = 1, **changes: Any) -> Match:
    return a_match(an_offer(offer_id=name, machine_id=name, quoted_usd_hour=usd_hour, gpu_count=count, **changes))


def order(watch: Watch, *found: Match) -> list[str]:
    return [match.offer.offer_id for match in best_first(watch, found)]


def test_a_range_of_counts_rents_the_smaller_machine_for_a_fraction_of_a_percent() -> None:
    """Eight GPUs at 18.31 $/h were rented instead of one at 2.293, 0.2 % cheaper per GPU."""
    eight, one = offer("eight", 18.31, 8), offer("one", 2.293)
    assert order(RENTS, eight, one) == ["one", "eight"]
    assert order(msgspec.structs.replace(RENTS, tie=0.0), eight, one) == ["eight", "one"]


def test_what_is_clearly_cheaper_for_each_gpu_wins_whatever_its_size() -> None:
    assert order(RENTS, offer("one", 2.33), offer("eight", 18.31, 8)) == ["eight", "one"]


def test_a_watch_that_only_alerts_names_the_cheapest_unless_it_says_how_close_is_equal() -> None:
    alerts = a_watch()
    found = offer("eight", 18.31, 8), offer("one", 2.293)
    assert (tie_of(alerts), order(alerts, *found)) == (0.0, ["eight", "one"])
    assert order(msgspec.structs.replace(alerts, tie=0.01), *found) == ["one", "eight"]


@pytest.mark.parametrize(
    ("watch", "found", "tied", "rule"),
    [
        (RENTS, [("one", 2.0, {})], 1, "it is the only one"),
        (RENTS, [("one", 2.0, {}), ("two", 2.5, {})], 1, "the lower GPU price"),
        (RENTS, [("eight", 18.31, {"gpu_count": 8}), ("one", 2.293, {})], 2, "the lower total price"),
        (RENTS, [("a", 2.0, {"reliability": 0.9}), ("b", 2.0, {"reliability": 0.99})], 2, "the higher reliability"),
        (RENTS, [("a", 2.0, {"download_mbps": 10.0}), ("b", 2.0, {"download_mbps": 90.0})], 2, "the faster download"),
        (RENTS, [("a", 2.0, {}), ("b", 2.0, {})], 2, "the order of their names, as nothing else distinguishes them"),
        (
            RENTS,
            [("a", 2.0, {}), ("b", 2.0, {"terms": OfferTerms(placement_score=9)})],
            2,
            "the higher placement score",
        ),
        (a_watch(), [("a", 2.0, {}), ("b", 2.01, {})], 1, "the lower GPU price"),
        (a_watch(), [("a", 2.0, {"reliability": 0.9}), ("b", 2.0, {"reliability": 0.99})], 2, "the higher reliability"),
        (
            msgspec.structs.replace(RENTS, prefer=Prefer.CHEAPEST_TOTAL),
            [("a", 2.0, {}), ("b", 3.0, {"gpu_count": 2})],
            1,
            "the lower total price",
        ),
    ],
)
def test_the_rule_that_decided_is_named(watch: Watch, found: list[Any], tied: int, rule: str) -> None:
    matches = [offer(name, usd, facts.pop("gpu_count", 1), **facts) for name, usd, facts in copy.deepcopy(found)]
    said = compare(watch, matches)
    assert (said.tied, said.rule) == (tied, rule)
    assert said.ordered == best_first(watch, matches)


def test_nothing_to_compare_has_no_best() -> None:
    assert compare(RENTS, ()).ordered == []


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"reliability": 0.999}, {"reliability": 0.95}),
        ({"verification": Verification.VERIFIED}, {"verification": Verification.UNVERIFIED}),
        ({"nvlink_gbps": 400.0}, {"nvlink_gbps": None}),
        ({"download_mbps": 9000.0}, {"download_mbps": 100.0}),
        ({"terms": OfferTerms(placement_score=9)}, {"terms": OfferTerms(placement_score=3)}),
        ({"terms": OfferTerms(placement_score=1)}, {"terms": OfferTerms()}),
    ],
)
def test_equal_totals_are_decided_by_quality(better: dict[str, Any], worse: dict[str, Any]) -> None:
    same = {"reliability": 0.9, "verification": None, "nvlink_gbps": None, "download_mbps": 500.0}
    found = offer("a", 2.0, **same | worse), offer("b", 2.0, **same | better)
    assert order(RENTS, *found) == ["b", "a"]


def test_a_tie_is_measured_from_the_cheapest_and_not_from_neighbour_to_neighbour() -> None:
    found = [offer("c", 2.03, 1), offer("b", 4.03, 2), offer("a", 8.0, 4)]
    assert order(RENTS, *found) == ["b", "a", "c"]


def test_the_cheapest_in_total_and_the_fastest_for_a_dollar() -> None:
    h100, a100 = offer("h100", 2.0), offer("a100", 1.5, gpu="A100 SXM 80GB")
    big = offer("big", 3.0, 2)
    total = msgspec.structs.replace(RENTS, prefer=Prefer.CHEAPEST_TOTAL)
    fastest = msgspec.structs.replace(RENTS, prefer=Prefer.FASTEST_PER_DOLLAR)
    assert order(RENTS, h100, big) == ["big", "h100"]
    assert order(total, h100, big) == ["h100", "big"]
    assert order(RENTS, h100, a100) == ["a100", "h100"]
    assert order(fastest, a100, h100) == ["h100", "a100"], "990 against 312 TFLOP/s"


def test_with_a_tie_of_nothing_equal_prices_still_are_equal() -> None:
    exact = msgspec.structs.replace(RENTS, tie=0.0)
    found = offer("eight", 16.0, 8), offer("two", 4.0, 2), offer("dearer", 2.01)
    assert order(exact, *found) == ["two", "eight", "dearer"]


def test_a_gpu_without_a_data_sheet_comes_last() -> None:
    fastest = msgspec.structs.replace(RENTS, prefer=Prefer.FASTEST_PER_DOLLAR)
    assert order(fastest, offer("unknown", 0.01, gpu="Mystery 1"), offer("h100", 3.0)) == ["h100", "unknown"]


def test_the_cost_of_a_whole_job_decides_alone() -> None:
    watch = msgspec.structs.replace(RENTS, max_job_cost_usd=Decimal(10))
    cheap = msgspec.structs.replace(offer("big", 18.31, 8), job_microusd=999)
    dear = msgspec.structs.replace(offer("one", 2.293), job_microusd=1000)
    assert order(watch, dear, cheap) == ["big", "one"]
