"""List prices are stored separately from the live ones in the history."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import Answer
from gpuwatch.storage.history.queries.poll_queries import last_polls
from gpuwatch.storage.history.queries.stored_prices import market_at
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.storage.stored_answers import NOON, an_answer, an_offer, machines, on_demand, price_track

H100 = on_demand("H100 SXM")
LISTED = on_demand("H100 SXM", provider="vastai:listed")


@pytest.fixture
def history(database: Database) -> SqlHistoryRecorder:
    return SqlHistoryRecorder(database)


def _mixed(after_s: float = 0, listed_usd_hour: float = 1.0) -> Answer:
    live, listed = an_offer("m1", 3.0), an_offer("p5", listed_usd_hour, kind=OfferKind.LISTED)
    return an_answer(live, listed, after_s=after_s)


def _lowest(database: Database, part: MarketFilter, minutes: int = 30) -> int | None:
    (point,) = price_track(database, part, NOON, NOON + timedelta(minutes=minutes))
    return point.min_microusd


def test_a_list_price_pulls_no_minimum_down(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(_mixed(), lane="sweep")
    assert _lowest(database, H100) == 3_000_000
    assert _lowest(database, LISTED) == 1_000_000


def test_a_list_price_that_is_no_longer_listed_ends(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(_mixed(), lane="sweep")
    gone = history.record(an_answer(an_offer("m1", 3.0), after_s=600), lane="sweep")
    assert gone.delisted == 1
    assert machines(market_at(database, NOON + timedelta(seconds=700))) == {"m1": 3_000_000}


def test_what_another_process_listed_ends_too(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(_mixed(), lane="sweep")
    assert SqlHistoryRecorder(database).record(an_answer(an_offer("m1", 3.0), after_s=600), lane="sweep").delisted == 1


def test_each_moment_is_reconstructed_with_both(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(_mixed(), lane="sweep")
    history.record(_mixed(600, 1.5), lane="sweep")
    early, late = (market_at(database, NOON + timedelta(seconds=s)) for s in (300, 700))
    assert machines(early) == {"m1": 3_000_000, "p5": 1_000_000}
    assert machines(late) == {"m1": 3_000_000, "p5": 1_500_000}
    assert {one.identity.provider for one in late} == {"vastai", "vastai:listed"}


def test_a_provider_of_list_prices_alone_has_been_seen(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(an_answer(an_offer("p5", kind=OfferKind.LISTED)), lane="sweep")
    assert last_polls(database)["vastai"].at == NOON
    assert history.rows_used("vastai", NOON) == 1


def test_a_check_keeps_them_apart_too(database: Database, history: SqlHistoryRecorder) -> None:
    history.record(_mixed(), lane="check")
    assert _lowest(database, H100) == 3_000_000
    assert _lowest(database, LISTED) == 1_000_000
