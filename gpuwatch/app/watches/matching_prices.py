"""The lowest price of each past hour that a watch would have matched, at any price.

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
from gpuwatch.domain.market.money import MICRO
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


class MatchingDay(msgspec.Struct, frozen=True, kw_only=True):
    """A day of the reader: its first hour, how many hours a poll covers, the lowest price; None: nothing matched."""

    at: datetime
    polled_hours: int
    low: int | None


class MatchingPrices(msgspec.Struct, frozen=True, kw_only=True):
    """The hours up to now, commission included, in micro-dollars per GPU-hour.

    Attributes:
        first_hour: hours since 1970, UTC.
        lows: None: nothing matched if `polled`, else not known.
        unrecorded: settings of the watch that the history does not record: they select nothing here.
    """

    first_hour: int
    lows: tuple[int | None, ...]
    polled: tuple[bool, ...]
    unrecorded: tuple[str, ...] = ()

    @property
    def known(self) -> list[int]:
        """The prices of the hours that have one."""
        return [low for low in self.lows if low is not None]

    @property
    def known_hours(self) -> int:
        """How many hours a poll covers."""
        return sum(self.polled)

    def starts_at(self, index: int) -> datetime:
        """When an hour begins."""
        return datetime.fromtimestamp((self.first_hour + index) * HOUR_S, UTC)

    def last(self, days: int) -> MatchingPrices:
        """Only the newest days."""
        hours = min(len(self.lows), days * 24)
        return msgspec.structs.replace(
            self,
            first_hour=self.first_hour + len(self.lows) - hours,
            lows=self.lows[-hours:],
            polled=self.polled[-hours:],
        )

    def days(self, zone: tzinfo) -> list[MatchingDay]:
        """By day, newest first."""
        hours = zip(map(self.starts_at, range(len(self.lows))), self.lows, self.polled, strict=True)
        days = []
        for _day, group in groupby(hours, key=lambda hour: hour[0].astimezone(zone).date()):
            of_day = list(group)
            low = min((low for _at, low, _polled in of_day if low is not None), default=None)
            days.append(MatchingDay(at=of_day[0][0], polled_hours=sum(polled for _at, _low, polled in of_day), low=low))
        return days[::-1]

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
    known = range(len(series.lows))
    return MatchingPrices(
        first_hour=hours[0],
        lows=tuple(series.lows[at] if (at := hour - series.first_hour) in known else None for hour in hours),
        polled=tuple((at := hour - series.first_hour) in known and series.polled[at] for hour in hours),
        unrecorded=unrecorded,
    )


class RecentMatchingPrices:
    """`matching_prices` for pages that many clients open: a watch's past changes once an hour."""

    def __init__(self) -> None:
        self._recent: RecentReadings[MatchingPrices] = RecentReadings(_KEPT_FOR)

    def prices(self, settings: Settings, watch: Watch, days: int, now: datetime) -> MatchingPrices:
        """`matching_prices`, at most ten minutes old. Raises StoreError."""
        basis = (watch, settings.database_url, commissions_of(settings), tuple(settings.providers))
        return self._recent.reading((watch.name, days), basis, now, lambda: matching_prices(settings, watch, days, now))
