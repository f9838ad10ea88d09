"""The lowest price of each hour, built from intervals and polls one at a time, in any order. Pure.

The result is that of `series_of` for the same intervals and polls, but nothing is kept except one price and one time
for each hour: years of prices can be streamed through it, and what is over need not be read again.
"""

from __future__ import annotations

from array import array

from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.domain.setup.durations import HOUR_S

_NO_PRICE = 2**62
_NO_POLL = 0


class HourlyRecord:
    """Prices and complete polls by hour since 1970; earlier hours than the first are ignored."""

    def __init__(self, first_hour: int) -> None:
        self.first_hour = first_hour
        self._lows = array("q")  # by hour; `_NO_PRICE`: none
        self._polled_s = array("q")  # the last poll of each hour that proves what was on offer; `_NO_POLL`: none

    def merge(self, other: HourlyRecord) -> None:
        """Add the prices and polls of another record that begins at the same hour."""
        self._grow(len(other._lows))
        for index, microusd in enumerate(other._lows):
            self._lows[index] = min(self._lows[index], microusd)
            self._polled_s[index] = max(self._polled_s[index], other._polled_s[index])

    def drop_before(self, hour: int) -> None:
        """Forget the hours before this one."""
        gone = hour - self.first_hour
        if gone > 0:
            del self._lows[:gone], self._polled_s[:gone]
            self.first_hour = hour

    def add_price(self, from_hour: int, last_hour: int, microusd: int) -> None:
        """Add the price of a GPU-hour that applied from one hour to another, both included."""
        start, end = max(from_hour - self.first_hour, 0), last_hour + 1 - self.first_hour
        self._grow(end)
        lows = self._lows
        for index in range(start, end):
            lows[index] = min(lows[index], microusd)

    def add_poll(self, at_s: int) -> None:
        """Add a poll that read every offer. Of several in an hour only the last one needs to be added."""
        index = at_s // HOUR_S - self.first_hour
        if index < 0:
            return
        self._grow(index + 1)
        self._polled_s[index] = max(at_s, self._polled_s[index])

    def first_poll_s(self, since_s: int) -> int | None:
        """Return a poll of the first hour with one that is not before `since_s`."""
        return next((at_s for at_s in self._polled_s if at_s >= since_s and at_s != _NO_POLL), None)

    def _grow(self, length: int) -> None:
        self._lows.extend([_NO_PRICE] * (length - len(self._lows)))
        self._polled_s.extend([_NO_POLL] * (length - len(self._polled_s)))

    def series(self, starts_s: int, until_s: int, source: str) -> PriceSeries:
        """Return the series from the first poll of any kind until a moment: only hours that a poll covers have prices.

        Args:
            starts_s: the first poll; earlier hours are left out.
            until_s: nothing is known from then on.
        """
        first = starts_s // HOUR_S
        polled = [False] * max(1, (until_s - 1) // HOUR_S - first + 1)
        last = 0
        for at_s in self._polled_s:
            if at_s == _NO_POLL or at_s >= until_s:
                continue
            for index in range(at_s // HOUR_S - first, (at_s + COVERAGE_S - 1) // HOUR_S - first + 1):
                if 0 <= index < len(polled):
                    polled[index] = True
                    last = max(last, index)
        lows = [self._low(first + index) if is_known else None for index, is_known in enumerate(polled[: last + 1])]
        return PriceSeries(first_hour=first, lows=lows, polled=polled[: last + 1], source=source)

    def _low(self, hour: int) -> int | None:
        index = hour - self.first_hour
        low = self._lows[index] if 0 <= index < len(self._lows) else _NO_PRICE
        return None if low == _NO_PRICE else low
