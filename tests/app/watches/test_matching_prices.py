"""The hours of a watch: offers that it would have matched, gaps where nobody polled, and what is under a limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from gpuwatch.app.watches.matching_prices import (
    HoursUnder,
    MatchingPrices,
    RecentMatchingPrices,
    matching_day,
    matching_prices,
)
from gpuwatch.domain.market.offer import Verification
from gpuwatch.settings import Settings
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.served import settings_in

TOML = """
[providers.vastai]
[[watch]]
name = "strict"
gpu = ["H100"]
max_price = 2.40
verified = true
min_cuda = 12.4
"""
NOW = datetime(2026, 3, 2, 12, 30, tzinfo=UTC)
GAP = range(6, 12)  # hours ago; a poll counts for three


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A store with ten hours of polls, of which six were missed; the cheaper machine is not verified."""
    settings = settings_in(tmp_path, TOML)
    recorder = SqlHistoryRecorder(open_database(settings.database_url))
    for hours in range(20, -1, -1):
        if hours in GAP:
            continue
        kept = 2.0 if hours > 3 else 3.0
        offers = [an_offer("kept", kept, verification=Verification.VERIFIED), an_offer("cheap", 1.0, verification=None)]
        shown = offers if hours != 2 else offers[1:]
        recorder.record(an_answer(*shown, observed_at=NOW - timedelta(hours=hours)), lane="sweep")
    return settings


def test_an_hour_has_the_lowest_price_of_the_offers_that_match(settings: Settings) -> None:
    prices = matching_prices(settings, settings.watches[0], 1, NOW)
    assert len(prices.lows) == len(prices.polled) == 24
    assert prices.starts_at(23) == NOW.replace(minute=0)
    commission = 1 + float(settings.providers["vastai"].commission.on_top_rate(None))
    assert {round(low / commission, -3) for low in prices.known} <= {2_000_000, 3_000_000}, "never the unverified one"
    assert prices.lows[-1] == max(prices.known)


def test_an_hour_without_a_poll_is_no_hour_without_offers(settings: Settings) -> None:
    prices = matching_prices(settings, settings.watches[0], 1, NOW)
    ago = {
        23 - index: (low, polled) for index, (low, polled) in enumerate(zip(prices.lows, prices.polled, strict=True))
    }
    assert ago[7] == (None, False), "nobody polled"
    assert ago[1][1], "polled"
    assert ago[23] == (None, False), "before the first poll"


def test_an_hour_that_only_another_provider_was_polled_in_is_not_known(settings: Settings) -> None:
    recorder = SqlHistoryRecorder(open_database(settings.database_url))
    recorder.record(an_answer(provider="runpod", observed_at=NOW - timedelta(hours=7)), lane="sweep")
    prices = matching_prices(settings, settings.watches[0], 1, NOW)
    assert not prices.polled[23 - 7], "an hour of a gap"


def test_what_the_history_does_not_record_is_named(settings: Settings) -> None:
    assert matching_prices(settings, settings.watches[0], 1, NOW).unrecorded == ("min_cuda",)


def test_the_time_under_a_limit_counts_polled_hours_only() -> None:
    low, high = 1_000_000, 3_000_000
    prices = MatchingPrices(
        first_hour=0,
        lows=(low, high, low, None, low, None, low),
        polled=(True, True, True, False, True, True, True),
    )
    # three times: a gap ends none, an hour without offers does
    assert prices.under(1.0) == HoursUnder(times=3, hours=4, known_hours=6, lasting_hours=1)
    assert prices.under(0.5).hours == 0
    assert prices.last(1) == prices


def test_a_reading_is_kept_for_minutes_and_not_beyond_a_change(settings: Settings) -> None:
    recent, (watch,) = RecentMatchingPrices(), settings.watches
    first = recent.prices(settings, watch, 1, NOW)
    assert recent.prices(settings, watch, 1, NOW + timedelta(minutes=4)) is first
    assert recent.prices(settings, watch, 1, NOW + timedelta(minutes=10)) is not first

    other = msgspec.structs.replace(watch, verified=False)
    assert min(recent.prices(settings, other, 1, NOW + timedelta(minutes=6)).known) < min(first.known)


def test_the_last_day_by_ten_minutes_agrees_with_its_hours(settings: Settings) -> None:
    recorder = SqlHistoryRecorder(open_database(settings.database_url))
    dip = an_offer("kept", 1.5, verification=Verification.VERIFIED)
    recorder.record(an_answer(dip, observed_at=NOW + timedelta(minutes=10)), lane="sweep")
    now = NOW + timedelta(minutes=25)
    day, hours = (
        read(settings, settings.watches[0], *rest)
        for read, rest in ((matching_day, (now,)), (matching_prices, (1, now)))
    )
    assert (day.step_s, len(day.lows), day.unrecorded) == (600, 23 * 6 + 6, hours.unrecorded)
    assert day.lows[-3:] == (3_600_000, 1_800_000, 1_800_000)
    assert [(one.at, one.low) for one in day.parts(UTC, by_hour=True)] == [
        (one.at, one.low) for one in hours.parts(UTC, by_hour=True)
    ]
