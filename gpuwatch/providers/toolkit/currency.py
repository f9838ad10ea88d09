"""Foreign prices in US dollars, by the European Central Bank's reference rate of the day.

The bank publishes the units of each currency for one euro, on working days at about 16:00 in Frankfurt. A list price
that is converted at an old rate, or at the built-in one, says so in its note. Without a rate there is no price.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from datetime import date
from typing import Final

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import NetError
from gpuwatch.providers.toolkit.validation import number

ECB_URL: Final = "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml"
# Used until a rate has been fetched. It approximates the bank's rate of that day and was written from memory, so the
# note of every offer that is converted with it says that the rate is built in.
BUILT_IN_ON: Final = date(2025, 6, 30)
BUILT_IN_USD_PER_EUR: Final = 1.1720
STALE_AFTER_DAYS: Final = 7  # Easter has four days without a rate
_PLAUSIBLE_USD_PER_EUR: Final = (0.5, 2.0)  # dollars per euro; the range since 1999 is 0.82 to 1.60
_REFRESH_S: Final = 24 * 3600.0
_RETRY_S: Final = 3600.0  # after a failed fetch
_DEADLINE_S: Final = 8.0
_MAX_BYTES: Final = 256 * 1024
_DAY = re.compile(r"""<Cube\s+time\s*=\s*["'](\d{4}-\d\d-\d\d)["']""")
_RATE = re.compile(r"""<Cube\s+currency\s*=\s*["']([A-Z]{3})["']\s+rate\s*=\s*["']([0-9.]{1,20})["']""")


class ExchangeRate(msgspec.Struct, frozen=True):
    """Dollars for one unit of a currency. `on` None: the currency is the dollar. `note`: why the rate is uncertain."""

    currency: str
    usd: float
    on: date | None = None
    note: str | None = None


class Fixing(msgspec.Struct, frozen=True):
    """One day's reference rates: units of each currency for one euro."""

    on: date
    per_euro: Mapping[str, float]
    built_in: bool = False


_DOLLAR: Final = ExchangeRate("USD", 1.0)
_BUILT_IN: Final = Fixing(BUILT_IN_ON, {"USD": BUILT_IN_USD_PER_EUR}, True)


def read_fixing(body: bytes) -> Fixing:
    """Parse the newest day of the bank's file. Uses no XML parser: entities of an untrusted file are a risk.

    Raises:
        PayloadChanged: there is no day, no dollar rate, an impossible rate, or two rates for one currency.
    """
    text = body[:_MAX_BYTES].decode("utf-8", "replace")
    days = list(_DAY.finditer(text))
    if not days:
        raise PayloadChanged("the exchange rates have no date")
    end = days[1].start() if len(days) > 1 else len(text)
    found: dict[str, float] = {}
    for currency, rate_text in _RATE.findall(text, days[0].end(), end):
        units = number(rate_text, 1e-6, 1e9)
        if units is None or found.setdefault(currency, units) != units:
            raise PayloadChanged(f"the exchange rate of {currency} is not a number")
    if not _PLAUSIBLE_USD_PER_EUR[0] < found.get("USD", 0.0) < _PLAUSIBLE_USD_PER_EUR[1]:
        raise PayloadChanged("the exchange rates have no plausible dollar rate")
    try:
        return Fixing(date.fromisoformat(days[0][1]), found)
    except ValueError as error:
        raise PayloadChanged("the exchange rates have an impossible date") from error


class ExchangeRates:
    """Exchange rates, fetched once a day; safe for several threads.

    Args:
        url: of the bank's file.
    """

    def __init__(self, tools: Tools, url: str = ECB_URL) -> None:
        self._tools = tools
        self._url = url
        self._lock = threading.Lock()
        self._fixing = _BUILT_IN
        self._due_at: float | None = None  # None: never fetched

    def rate(self, currency: str) -> ExchangeRate | None:
        """Return dollars for one unit; None: unknown. Never fails: it falls back to an old rate, whose note says so."""
        if currency == "USD":
            return _DOLLAR
        with self._lock:
            if self._due_at is None or self._tools.monotonic() >= self._due_at:
                self._refresh()
            return rate_of(currency, self._fixing, self._tools.now().date())

    def _refresh(self) -> None:
        try:
            self._fixing = self._fetch()
            wait_s = _REFRESH_S
        except (NetError, PayloadChanged) as error:
            import logging  # noqa: PLC0415 - not for start-up, and most fetches succeed

            logging.getLogger(__name__).warning("no new exchange rates, using those of %s: %s", self._fixing.on, error)
            wait_s = _RETRY_S
        self._due_at = self._tools.monotonic() + wait_s

    def _fetch(self) -> Fixing:
        reply = self._tools.http.ask(
            "GET", self._url, headers={"Accept": "application/xml"}, deadline_s=_DEADLINE_S, max_bytes=_MAX_BYTES
        )
        if reply.status != 200:
            raise PayloadChanged(f"the request for exchange rates failed with status {reply.status}")
        fixing = read_fixing(reply.body)
        if (fixing.on - self._tools.now().date()).days > 1:
            raise PayloadChanged(f"the exchange rates have a future date, {fixing.on}")
        if fixing.on < self._fixing.on:
            raise PayloadChanged(f"the exchange rates have the date {fixing.on} and are older than the known ones")
        return fixing


def rate_of(currency: str, fixing: Fixing, today: date) -> ExchangeRate | None:
    """Return the rate of a currency on one day; None: the file does not list it."""
    units = 1.0 if currency == "EUR" else fixing.per_euro.get(currency)
    if not units:
        return None
    days = (today - fixing.on).days
    note = None
    if fixing.built_in:
        note = f"{currency} converted at a built-in rate of {fixing.on}: no newer one is available"
    elif days > STALE_AFTER_DAYS:
        note = f"{currency} converted at a rate of {fixing.on}, {count_text(days, 'day')} old"
    return ExchangeRate(currency, fixing.per_euro["USD"] / units, fixing.on, note)
