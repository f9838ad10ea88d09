"""Why a watch does not match: the nearest offers."""

from __future__ import annotations

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.choice import nearest
from tests.builders import NOON, a_watch, an_offer

VAST = {"vastai": Commission("0.20")}


def _ids(*offers: object, limit: int = 5) -> list[str]:
    misses = nearest(a_watch(min_cuda=12.4), offers, VAST, NOON, limit)  # type: ignore[arg-type]
    return [miss.offer.offer_id for miss in misses]


def test_a_near_miss_names_each_clause_and_by_how_much() -> None:
    miss = nearest(a_watch(min_cuda=12.4), [an_offer(quoted_usd_hour=3.1, cuda_max=12.2)], VAST, NOON)[0]
    assert [failure.text for failure in miss.failures] == ["max_price: 3.72 > 3.60", "min_cuda: 12.2 < 12.4"]
    assert miss.price.price_microusd_hour == 3_720_000


def test_what_matches_is_no_miss() -> None:
    assert _ids(an_offer(cuda_max=12.4)) == []


def test_the_nearest_is_the_right_gpu_then_fewest_clauses_then_least_off() -> None:
    other = an_offer(offer_id="other gpu", gpu="RTX 4090", quoted_usd_hour=0.3, cuda_max=13.0)
    little = an_offer(offer_id="a little dear", quoted_usd_hour=3.1, cuda_max=13.0)
    much = an_offer(offer_id="much too dear", quoted_usd_hour=6.0, cuda_max=13.0)
    two = an_offer(offer_id="two clauses", quoted_usd_hour=3.01, cuda_max=12.3)
    assert _ids(other, two, much, little) == ["a little dear", "much too dear", "two clauses", "other gpu"]


def test_equally_far_misses_come_cheapest_first() -> None:
    dear = an_offer(offer_id="dear", quoted_usd_hour=3.0)
    cheap = an_offer(offer_id="cheap", quoted_usd_hour=2.0)
    assert _ids(dear, cheap) == ["cheap", "dear"]


def test_no_more_are_named_than_asked_for() -> None:
    assert len(_ids(*(an_offer(offer_id=str(number)) for number in range(9)), limit=3)) == 3


def test_five_near_misses_are_shown_by_default() -> None:
    offers = [an_offer(offer_id=str(number), machine_id=str(number), cuda_max=12.0) for number in range(9)]
    assert len(nearest(a_watch(min_cuda=12.4), offers, VAST, NOON)) == 5


def test_the_distance_of_a_number_is_the_missing_share() -> None:
    (miss,) = nearest(a_watch(min_ram_gib=100.0), [an_offer(ram_gib=75.0)], VAST, NOON)
    assert [failure.off for failure in miss.failures if failure.clause == "min_ram_gib"] == [0.25]


def test_the_distance_of_a_gpu_count_is_the_share_of_the_nearer_bound() -> None:
    few, many = an_offer(gpu_count=1), an_offer(gpu_count=10)
    found = nearest(a_watch(gpu_count_min=4, gpu_count_max=8), [few, many], VAST, NOON)
    off = {
        miss.offer.gpu_count: failure.off
        for miss in found
        for failure in miss.failures
        if failure.clause == "gpu_count"
    }
    assert off == {1: 0.75, 10: 0.25}
