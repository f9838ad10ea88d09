"""With a range of counts the lowest GPU price is found, as if every row had been read, or its absence is stated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.money import Commission, CommissionMode
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.match import match_of, matches, price_for
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.launches.renting.requoter import Requoter
from gpuwatch.engine.market.browse import offer_filter, search_offers
from gpuwatch.engine.market.watch_search import PAGE_ROWS, find_offer, queries_for
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.engine.watches.one_poll import ProviderCheck, check_provider
from gpuwatch.ports import Answer, Completeness, Query
from tests.builders import a_watch, changed
from tests.engine.market.cut_market import CutMarket, machine
from tests.engine.uow_fakes import NOON
from tests.engine.watches.test_evaluator import Bench

TWENTY = Commission("0.20")
RANGE = a_watch(gpu_names=("H100 SXM",), gpu_count_max=8, max_price_usd_gpu_hour=Decimal(3))
SINGLES = [machine(number, 1, 1.50 + number / 10_000) for number in range(64)]
EIGHT = machine(1000, 8, 9.60)  # 1.20 listed, 1.44 with the commission

offers_of_all_sizes = st.lists(
    st.tuples(
        st.integers(1, 9),
        st.integers(20, 300).map(lambda cents: cents / 100),  # listed, per GPU; the limit is 2.50
        st.sampled_from([0.5, 0.99]),
    ),
    max_size=40,
).map(
    lambda drawn: [
        machine(number, count, round(count * price, 2), reliability=reliability)
        for number, (count, price, reliability) in enumerate(drawn)
    ]
)
pages = st.integers(1, 12)
watches = st.builds(
    lambda low, more, reliability: changed(
        RANGE, gpu_count_min=low, gpu_count_max=low + more, min_reliability=reliability
    ),
    st.integers(1, 4),
    st.integers(0, 6),
    st.sampled_from([None, 0.9]),
)
commissions = st.sampled_from([TWENTY, Commission("0.20", CommissionMode.INCLUDED), Commission("0")])


def best_of(watch: Watch, offers: Sequence[Offer], commission: Commission = TWENTY) -> float | None:
    """Return the lowest GPU price after reading everything."""
    found = matches(watch, offers, {"vastai": commission}, NOON)
    return found[0].price_microusd_gpu_hour if found else None


def checked(market: CutMarket, *asked: Watch, commission: Commission = TWENTY) -> ProviderCheck:
    return check_provider(market, asked, commission, lambda: NOON)


def cheapest(found: ProviderCheck, watch: Watch) -> float | None:
    mine = found.matches[watch.name]
    return mine[0].price_microusd_gpu_hour if mine else None


class Hunt:
    """One round of the hunt for some watches."""

    def __init__(self, market: CutMarket, *asked: Watch) -> None:
        self.kept: list[Answer] = []
        bench = Bench(*asked)

        def keep(_query: Query, answer: object, _now: datetime) -> None:
            self.kept += [answer] if isinstance(answer, Answer) else []

        hunter = Hunter(market, asked, TWENTY, bench.evaluator, keep, threading.Event())
        hunter.run_round(lambda: NOON, 30.0, 30.0)
        self.alerts = {alert.watch: alert for alert, _ in bench.uow_factory.alerts}


# --- the case -------------------------------------------------------------------------------------------------------


def test_check_finds_the_machine_of_eight_behind_a_page_of_single_gpus() -> None:
    market = CutMarket([*SINGLES, EIGHT], PAGE_ROWS)
    found = checked(market, RANGE)
    assert found.matches["h100"][0].offer.gpu_count == 8
    assert found.report.ok
    assert [query.count_min for query in market.asked][-1] > 1


def test_a_hunt_finds_it_too(caplog: pytest.LogCaptureFixture) -> None:
    hunt = Hunt(CutMarket([*SINGLES, EIGHT], 10), RANGE)
    assert EIGHT in hunt.kept[0].offers
    assert "8" in str(hunt.alerts["h100"])
    assert not caplog.records or "missing" not in caplog.text


def test_offers_shows_it_first() -> None:
    wanted = offer_filter(["H100 SXM"], count="1-8")
    found = search_offers(CutMarket([*SINGLES, EIGHT], PAGE_ROWS), wanted, TWENTY, 20)
    assert (found.matches[0].offer, found.error) == (EIGHT, None)


def test_offers_without_a_count_knows_no_largest_machine_and_finds_it_all_the_same() -> None:
    found = search_offers(CutMarket([*SINGLES, EIGHT], PAGE_ROWS), offer_filter(["H100 SXM"]), TWENTY, 20)
    assert (found.matches[0].offer, found.error) == (EIGHT, None)


def test_one_count_needs_one_search() -> None:
    market = CutMarket([*SINGLES, EIGHT], 10)
    Hunt(market, changed(RANGE, gpu_count_max=1))
    assert len(market.asked) == 1


def test_a_page_that_nothing_behind_it_can_undercut_needs_one_search() -> None:
    """A missing offer costs at least 1.80 in total, hence 0.90 for each of two GPUs; 0.75 was found."""
    offers = [machine(1, 1, 0.75), *(machine(number, 1, 1.80) for number in range(2, 20))]
    market = CutMarket(offers, 10)
    Hunt(market, changed(RANGE, gpu_count_max=2))
    assert len(market.asked) == 1


def test_watches_that_share_a_question_each_find_their_cheapest() -> None:
    """One watch finds its offer on the truncated page; the other one's follows after it."""
    strict = changed(RANGE, name="strict", gpu_count_max=1, verified=None, regions=("NO",))
    plain = changed(strict, name="plain", regions=())
    offers = [*SINGLES, machine(2000, 1, 2.0, country="NO", region="Oslo")]
    assert set(Hunt(CutMarket(offers, 10), plain, strict).alerts) == {"plain", "strict"}


# --- what cannot be proven --------------------------------------------------------------------------------------------


def test_a_marketplace_that_fails_midway_leaves_what_was_found_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    found = checked(CutMarket([*SINGLES, EIGHT], PAGE_ROWS, fails_from=2), RANGE)
    assert found.matches["h100"]
    assert not found.report.ok
    assert "502" in (found.report.error or "")
    hunt = Hunt(CutMarket([*SINGLES, EIGHT], 10, fails_from=2), RANGE)
    assert hunt.alerts
    assert hunt.kept[0].completeness is Completeness.PARTIAL
    assert "whether a larger machine is cheaper: HTTP 502" in caplog.text


def test_offers_stops_reading_when_its_time_is_over_and_shows_what_it_has() -> None:
    market = CutMarket([*SINGLES, EIGHT], 10)
    shown = search_offers(market, offer_filter(["H100 SXM"]), TWENTY, 20, has_time=lambda: False)
    assert (len(shown.matches), len(market.asked)) == (10, 1)
    assert "--timeout" in (shown.error or "")


def test_a_cut_that_no_question_gets_past_is_stated() -> None:
    market = CutMarket([*SINGLES, EIGHT], 10, states_price=False, reads_all=False)
    found = checked(market, RANGE)
    assert found.matches["h100"]
    assert "its answer was truncated" in (found.report.error or "")
    shown = search_offers(market, offer_filter(["H100 SXM"], count="1-8"), TWENTY, 20)
    assert "its answer was truncated" in (shown.error or "")


# --- against reading everything ---------------------------------------------------------------------------------------


@given(offers_of_all_sizes, pages, watches, commissions)
def test_check_finds_what_reading_everything_finds(
    offers: list[Offer], page: int, watch: Watch, commission: Commission
) -> None:
    twin = changed(watch, name="twin", gpu_count_min=1, gpu_count_max=8)
    market = CutMarket(offers, page)
    found = checked(market, watch, twin, commission=commission)
    assert cheapest(found, watch) == best_of(watch, offers, commission)
    assert cheapest(found, twin) == best_of(twin, offers, commission)
    assert found.report.ok
    assert len(market.asked) <= 1 + 2 * 12


@given(offers_of_all_sizes, pages, watches)
def test_a_hunt_finds_what_reading_everything_finds(offers: list[Offer], page: int, watch: Watch) -> None:
    strict = changed(watch, name="strict", min_vram_gib=None, regions=("NO",))
    hunt = Hunt(CutMarket(offers, page), watch, strict)
    (answer,) = hunt.kept
    assert best_of(watch, answer.offers) == best_of(watch, offers)
    assert set(hunt.alerts) == ({watch.name} if best_of(watch, offers) is not None else set())


@given(offers_of_all_sizes, pages, st.sampled_from([None, "1-8", "2-4", "1"]), st.integers(1, 12))
def test_offers_shows_what_reading_everything_shows(
    offers: list[Offer], page: int, count: str | None, limit: int
) -> None:
    wanted = offer_filter(["H100 SXM"], count=count)
    shown = search_offers(CutMarket(offers, page), wanted, TWENTY, limit)
    whole = search_offers(CutMarket(offers, len(offers) + 1), wanted, TWENTY, None)
    prices = [[match.price_microusd_gpu_hour for match in one.matches[:1]] for one in (shown, whole)]
    assert prices[0] == prices[1]
    assert shown.error is None


@given(offers_of_all_sizes, pages, watches, st.data())
def test_a_new_quote_is_the_offer_as_reading_everything_shows_it(
    offers: list[Offer], page: int, watch: Watch, data: st.DataObject
) -> None:
    """Before a launch, and after an approval."""
    fitting = matches(watch, offers, {"vastai": TWENTY}, NOON)
    if not fitting:
        return
    chosen = data.draw(st.sampled_from(fitting))
    old = changed(chosen.offer, observed_at=NOON.replace(year=2025), quoted_usd_hour=chosen.offer.quoted_usd_hour + 0.1)
    market = CutMarket(offers, page)
    quote = Requoter(market, TWENTY, watch, lambda: NOON).requote(match_of(watch, old, price_for(watch, old, {})))
    assert quote is not None
    assert quote.price == chosen.price
    size = changed(queries_for(watch, TWENTY)[0], count_min=old.gpu_count, count_max=old.gpu_count)
    search = cast(Callable[[Query], Answer], market.search)
    assert find_offer(search, size, old.identity)[1] == chosen.offer
