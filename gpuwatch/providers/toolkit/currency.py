"""Foreign prices in US dollars: the European Central Bank's reference rate of the day, dated, and told with the price.

The bank publishes units of each currency for one euro, on working days at about 16:00 in Frankfurt. A list price that
is reckoned with an old rate, or with the built-in one, says so in its note. There is no price without a rate.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from datetime import date
from typing import Final

import msgspec

from gpuwatch.errors import PayloadChanged
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import NetError
from gpuwatch.providers.toolkit.validation import number

log = logging.getLogger(__name__)

ECB_URL: Final = "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml"
# What is used where no rate was ever had. About what the bank told at that time: written down from memory, without a
# record of the day, so every offer that is reckoned with it says that the rate is built in.
BUILT_IN_ON: Final = date(2025, 6, 30)
BUILT_IN_USD_PER_EUR: Final = 1.1720
OLD_AFTER_DAYS: Final = 7  # Easter has four days without a rate
_PLAUSIBLE: Final = (0.5, 2.0)  # dollars for a euro; since 1999 it was 0.82 to 1.60
_FRESH_S: Final = 24 * 3600.0
_AGAIN_S: Final = 3600.0  # after a failure
_DEADLINE_S: Final = 8.0
_MAX_BYTES: Final = 256 * 1024
_DAY = re.compile(r"""<Cube\s+time\s*=\s*["'](\d{4}-\d\d-\d\d)["']""")
_RATE = re.compile(r"""<Cube\s+currency\s*=\s*["']([A-Z]{3})["']\s+rate\s*=\s*["']([0-9.]{1,20})["']""")


class ExchangeRate(msgspec.Struct, frozen=True):
    """Dollars for one unit of a currency. `on` None: it is the dollar itself. `note`: what is not sure about it."""

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
    """The newest day of the bank's file. Not an XML parser: a stranger's entities have no place here.

    Raises:
        PayloadChanged: no day, no dollar, a rate that cannot be, two rates for one currency.
    """
    text = body[:_MAX_BYTES].decode("utf-8", "replace")
    days = list(_DAY.finditer(text))
    if not days:
        raise PayloadChanged("the rates of exchange have no day")
    end = days[1].start() if len(days) > 1 else len(text)
    found: dict[str, float] = {}
    for currency, spelled in _RATE.findall(text, days[0].end(), end):
        units = number(spelled, 1e-6, 1e9)
        if units is None or found.setdefault(currency, units) != units:
            raise PayloadChanged(f"the rate of exchange of {currency} is none")
    if not _PLAUSIBLE[0] < found.get("USD", 0.0) < _PLAUSIBLE[1]:
        raise PayloadChanged("the rates of exchange have no plausible dollar")
    try:
        return Fixing(date.fromisoformat(days[0][1]), found)
    except ValueError as error:
        raise PayloadChanged("the rates of exchange have no real day") from error


class ExchangeRates:
    """Rates for all who ask, fetched once a day; for several threads.

    Args:
        url: where the bank's file is.
    """

    def __init__(self, tools: Tools, url: str = ECB_URL) -> None:
        self._tools = tools
        self._url = url
        self._lock = threading.Lock()
        self._newest = _BUILT_IN
        self._due_at: float | None = None  # None: never asked

    def rate(self, currency: str) -> ExchangeRate | None:
        """Dollars for one unit of it; None: nobody tells. Never fails: an old rate is used, and says that it is old."""
        if currency == "USD":
            return _DOLLAR
        with self._lock:
            if self._due_at is None or self._tools.monotonic() >= self._due_at:
                self._refresh()
            return rate_of(currency, self._newest, self._tools.now().date())

    def _refresh(self) -> None:
        try:
            self._newest = self._fetched()
            wait_s = _FRESH_S
        except (NetError, PayloadChanged) as error:
            log.warning("no new rates of exchange, those of %s are used: %s", self._newest.on, error)
            wait_s = _AGAIN_S
        self._due_at = self._tools.monotonic() + wait_s

    def _fetched(self) -> Fixing:
        reply = self._tools.http.ask(
            "GET", self._url, headers={"Accept": "application/xml"}, deadline_s=_DEADLINE_S, max_bytes=_MAX_BYTES
        )
        if reply.status != 200:
            raise PayloadChanged(f"the rates of exchange were answered with {reply.status}")
        fixing = read_fixing(reply.body)
        if (fixing.on - self._tools.now().date()).days > 1:
            raise PayloadChanged(f"the rates of exchange are of a day to come, {fixing.on}")
        if fixing.on < self._newest.on:
            raise PayloadChanged(f"the rates of exchange are of {fixing.on}, older than those that are known")
        return fixing


def rate_of(currency: str, fixing: Fixing, today: date) -> ExchangeRate | None:
    """A currency by one day's rates; None: it is not among them."""
    units = 1.0 if currency == "EUR" else fixing.per_euro.get(currency)
    if not units:
        return None
    days = (today - fixing.on).days
    note = None
    if fixing.built_in:
        note = f"{currency} reckoned with a built-in rate of {fixing.on}: no newer one was to be had"
    elif days > OLD_AFTER_DAYS:
        note = f"{currency} reckoned with a rate of {fixing.on}, {days} days old"
    return ExchangeRate(currency, fixing.per_euro["USD"] / units, fixing.on, note)
