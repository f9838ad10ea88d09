"""The lowest price of each past hour that a watch would have matched, at any price; of the last day by ten minutes.

Matching is exact: what the history records of an offer is compared with the watch, its disk is paid and the commission
is on top, as for `max_price = "auto"`. An hour without a poll is a gap; it never means "nothing on sale".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.history.recent_readings import RecentReadings
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.bootstrap.provider_access import providers_polled_for
from gpuwatch.bootstrap.rules import commissions_of
from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.history.price_series import PERIODS_S, PeriodLength
from gpuwatch.domain.market.money import MICRO, REFERENCE_DISK_GB
from gpuwatch.domain.setup.durations import HOUR_S

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings

_KEPT_FOR = timedelta(minutes=5)
_HALF_MICRO = 0.5  # a GPU price is rounded to whole micro-dollars


class HoursUnder(msgspec.Struct, frozen=True, kw_only=True):
    """How long the lowest price was at or under a limit, in hours that a poll covers."""

    times: int  # an hour that was polled and had no such price ends one
    hours: int
    known_hours: int
    lasting_hours: int  # up to now; 0: it is over the limit now, or nothing is known


class MatchingPart(msgspec.Struct, frozen=True, kw_only=True):
    """A day or an hour of the reader: its begin, how many hours a poll covers, the lowest price; None: none matched."""

    at: datetime
    polled_hours: float
    low: int | None


class MatchingPrices(msgspec.Struct, frozen=True, kw_only=True):
    """The hours up to now, commission included, in micro-dollars per GPU-hour.

    Attributes:
        first_hour: hours since 1970, UTC.
        lows: None: nothing matched if `polled`, else not known.
        unrecorded: settings of the watch that the history does not record: they select nothing here.
        step_s: length of an entry, when it is not an hour.
    """

    first_hour: int
    lows: tuple[int | None, ...]
    polled: tuple[bool, ...]
    unrecorded: tuple[str, ...] = ()
    step_s: int = HOUR_S

    @property
    def known(self) -> list[int]:
        """The prices of the hours that have one."""
        return [low for low in self.lows if low is not None]

    @property
    def known_hours(self) -> int:
        """How many hours a poll covers."""
        return sum(self.polled)

    def starts_at(self, index: int) -> datetime:
        """When an entry begins."""
        return datetime.fromtimestamp(self.first_hour * HOUR_S + index * self.step_s, UTC)

    def last(self, days: int) -> MatchingPrices:
        """Only the newest days."""
        hours = min(len(self.lows), days * 24)
        return msgspec.structs.replace(
            self,
            first_hour=self.first_hour + len(self.lows) - hours,
            lows=self.lows[-hours:],
            polled=self.polled[-hours:],
        )

    def parts(self, zone: tzinfo, *, by_hour: bool = False) -> list[MatchingPart]:
        """By day, or by hour, newest first."""
        local = [self.starts_at(index).astimezone(zone) for index in range(len(self.lows))]
        entries = zip(local, self.lows, self.polled, strict=True)
        parts = []
        for _part, group in groupby(entries, key=lambda entry: (entry[0].date(), by_hour and entry[0].hour)):
            of_part = list(group)
            low = min((low for _at, low, _polled in of_part if low is not None), default=None)
            polled_s = sum(polled for _at, _low, polled in of_part) * self.step_s
            parts.append(MatchingPart(at=of_part[0][0], polled_hours=polled_s / HOUR_S, low=low))
        return parts[::-1]

    def under(self, limit_usd_gpu_hour: float) -> HoursUnder:
        """How long the lowest price was at or under a limit."""
        most = limit_usd_gpu_hour * MICRO + _HALF_MICRO
        known = [
            low is not None and low <= most for low, is_polled in zip(self.lows, self.polled, strict=True) if is_polled
        ]
        runs = [(is_under, len(list(run))) for is_under, run in groupby(known)]
        return HoursUnder(
            times=sum(is_under for is_under, _ in runs),
            hours=sum(known),
            known_hours=len(known),
            lasting_hours=runs[-1][1] if runs and runs[-1][0] and self.polled[-1] else 0,
        )


def matching_prices(settings: Settings, watch: Watch, days: int, now: datetime) -> MatchingPrices:
    """The lowest matching price of each of the last hours. Raises StoreError."""
    from gpuwatch.storage.forecasts.fitting_prices import SqlFittingPrices  # noqa: PLC0415 a check may have no history

    last = int(now.timestamp()) // HOUR_S
    hours = range(last - days * 24 + 1, last + 1)
    with open_store_read_only(settings) as store:
        prices = SqlFittingPrices(store, commissions_of(settings), providers_polled_for(watch, settings.providers))
        since = datetime.fromtimestamp(hours[0] * HOUR_S, UTC)
        series, unrecorded = prices.series_and_unrecorded(watch, since, now)
    known = range(0 if watch.wants_no_gpu else len(series.lows))  # their past prices are not kept as hours
    return MatchingPrices(
        first_hour=hours[0],
        lows=tuple(series.lows[at] if (at := hour - series.first_hour) in known else None for hour in hours),
        polled=tuple((at := hour - series.first_hour) in known and series.polled[at] for hour in hours),
        unrecorded=unrecorded,
    )


def matching_day(settings: Settings, watch: Watch, now: datetime) -> MatchingPrices:
    """The last day by ten minutes, from the prices themselves. Raises StoreError."""
    from gpuwatch.domain.forecasts.backtest.replayed_candidates import fitting_offers  # noqa: PLC0415 numpy
    from gpuwatch.domain.forecasts.backtest.replayed_offers import without_unrecorded_clauses  # noqa: PLC0415
    from gpuwatch.domain.forecasts.price_forecasts import scope_of  # noqa: PLC0415
    from gpuwatch.domain.history.price_periods import price_periods_of  # noqa: PLC0415
    from gpuwatch.storage.history.queries.stored_prices import read_market_history  # noqa: PLC0415

    every = PeriodLength.TEN_MINUTES
    step_s, until_s = PERIODS_S[every], int(now.timestamp()) + 1
    first_hour = int(now.timestamp()) // HOUR_S - 23
    covered_from = datetime.fromtimestamp(first_hour * HOUR_S - COVERAGE_S, UTC)  # an earlier poll still counts
    with open_store_read_only(settings) as store:
        past = read_market_history(store, scope_of(watch), covered_from, datetime.fromtimestamp(until_s, UTC))
    providers = providers_polled_for(watch, settings.providers)
    offers, priced = fitting_offers(watch, past, commissions_of(settings), REFERENCE_DISK_GB, providers)
    periods = price_periods_of(offers, priced, priced, every, UTC, until_s)
    points = {int(point.starts_at.timestamp()): point for point in periods.points}
    steps = range(first_hour * HOUR_S, until_s, step_s)
    known = [None if watch.wants_no_gpu else points.get(at_s) for at_s in steps]  # their past prices are not read
    return MatchingPrices(
        first_hour=first_hour,
        lows=tuple(None if point is None else point.min_microusd for point in known),
        polled=tuple(point is not None and point.polled for point in known),
        unrecorded=without_unrecorded_clauses(watch, past.listings)[1],
        step_s=step_s,
    )


class RecentMatchingPrices:
    """`matching_prices` for pages that many clients open: a watch's past changes once an hour."""

    def __init__(self) -> None:
        self._recent: RecentReadings[MatchingPrices] = RecentReadings(_KEPT_FOR)

    def day(self, settings: Settings, watch: Watch, now: datetime) -> MatchingPrices:
        """`matching_day`, at most ten minutes old. Raises StoreError."""
        return self._recent.reading(
            (watch.name, "day"), _basis(settings, watch), now, lambda: matching_day(settings, watch, now)
        )

    def prices(self, settings: Settings, watch: Watch, days: int, now: datetime) -> MatchingPrices:
        """`matching_prices`, at most ten minutes old. Raises StoreError."""
        return self._recent.reading(
            (watch.name, days), _basis(settings, watch), now, lambda: matching_prices(settings, watch, days, now)
        )


def _basis(settings: Settings, watch: Watch) -> object:
    return watch, settings.database_url, commissions_of(settings), tuple(settings.providers)
