"""A day by ten minutes: from the prices themselves, and by the hour where only their aggregates are left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from gpuwatch.app.history.price_history import PriceHistoryRequest, PriceHistoryResult, price_history
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import PeriodLength
from gpuwatch.settings import Settings
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.served import settings_in

NOW = datetime(2026, 3, 2, 12, 34, tzinfo=UTC)
PRICES = (3.0, 2.0, 2.0, 4.0)  # by the quarter of an hour, again and again


def a_store(folder: Path) -> Settings:
    """A day of polls every quarter of an hour, of which the nine hours before the last three are missing."""
    settings = settings_in(folder, "[providers.vastai]\ncommission = 0\n")
    store = open_database(settings.database_url)
    recorder = SqlHistoryRecorder(store)
    for quarter in range(26 * 4, -1, -1):
        if 12 <= quarter < 48:
            continue
        at = NOW - timedelta(minutes=15 * quarter + 4)
        recorder.record(an_answer(an_offer("one", PRICES[at.minute // 15]), observed_at=at), lane="sweep")
    recorder.roll_up(NOW)
    store.close()
    return settings


def asked(settings: Settings, every: str) -> PriceHistoryResult:
    request = PriceHistoryRequest(
        gpu="H100",
        scope=MarketFilter(spot=False),
        since=NOW - timedelta(days=1),
        until=NOW,
        data=None,
        every=every,
        is_for_programs=False,
        zone=UTC,
        under_usd=(),
    )
    return price_history(settings, request)


def lows(result: PriceHistoryResult) -> list[float | None]:
    return [None if one.min_microusd is None else one.min_microusd / 1e6 for one in result.track.points]


def test_steps_of_ten_minutes_show_what_an_hour_hides(tmp_path: Path) -> None:
    settings = a_store(tmp_path)
    fine, by_hour = asked(settings, "10m"), asked(settings, "1h")
    points = fine.track.points
    assert fine.every is PeriodLength.TEN_MINUTES
    assert 24 * 6 <= len(points) + 1 <= 24 * 6 + 1, "at most 400, none of the time to come"
    assert {later.starts_at - one.starts_at for one, later in pairwise(points)} == {timedelta(minutes=10)}
    # polls are at :00, :15, :30 and :45: what one says holds until the next
    assert lows(fine)[-4:] == [3.0, 2.0, 2.0, 2.0]
    assert [one.polled for one in points].count(False) == 37, "from 03:30, three hours after a poll, to 09:45"
    hours = {one.starts_at: one.min_microusd for one in by_hour.track.points}
    for start in {one.starts_at.replace(minute=0) for one in points[6:]}:
        known = [one.min_microusd for one in points if one.starts_at.replace(minute=0) == start and one.min_microusd]
        assert min(known, default=None) == hours[start]


def test_where_only_hours_are_left_it_is_by_the_hour(tmp_path: Path) -> None:
    settings = a_store(tmp_path)
    store = open_database(settings.database_url)
    prune(store, timedelta(hours=2), NOW)
    store.close()
    fine, by_hour = asked(settings, "10m"), asked(settings, "1h")
    assert (fine.every, lows(fine)) == (PeriodLength.HOUR, lows(by_hour))
