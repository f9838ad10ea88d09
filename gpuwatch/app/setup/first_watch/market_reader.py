"""Today's prices at the enabled markets, and recorded ones, for the questions of `gpuwatch init`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from csv import DictReader
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.resources import files

from gpuwatch import providers
from gpuwatch.app.setup.first_watch.first_settings import MIN_RELIABILITY
from gpuwatch.app.setup.first_watch.price_figures import LowPrice, PriceFigures, low_prices
from gpuwatch.bootstrap import build_adapters, open_http, open_store_read_only, real_now
from gpuwatch.domain.history.past_lows import HourlyLows
from gpuwatch.domain.market.money import MICRO, Commission, usd
from gpuwatch.domain.watches.decide import Match
from gpuwatch.engine.market.browse import OfferFilter, ProviderOffers, search_offers
from gpuwatch.engine.setup.failpoint import pace
from gpuwatch.engine.setup.parallel import run_in_parallel
from gpuwatch.errors import StoreError
from gpuwatch.ports.declarations import Adapter
from gpuwatch.settings import Settings
from gpuwatch.storage.history.queries.history_queries import SqlHourlyLows

_WITHIN_S = 12.0
_ROWS = 64  # of each market
_OWN_DAYS = 14
_MIN_OWN_DAYS = 3  # with fewer, the public prices say more
OWN_SOURCE = f"your own history, last {_OWN_DAYS} days"


class MarketReader:
    """Reads prices of one GPU after another, at the pace that each market allows.

    Args:
        rates_hosts: only verified, reliable hosts count, as in the watch that is written.
    """

    def __init__(self, settings: Settings, adapters: Mapping[str, Adapter], *, rates_hosts: bool) -> None:
        self._settings = settings
        self._adapters = adapters
        self._rates_hosts = rates_hosts

    def figures(self, names: Sequence[str]) -> PriceFigures:
        """The prices of these cards today, and those of past days: from the own store, else public ones."""
        today, faults = self._today(tuple(names))
        own = self._own_lows(names)
        if len({low.day for low in own}) >= _MIN_OWN_DAYS:
            of_all = (
                f"{OWN_SOURCE}, any host" if self._rates_hosts else OWN_SOURCE
            )  # it does not say which are verified
            return PriceFigures(today=today, recorded=own, source=of_all, is_own=not self._rates_hosts, faults=faults)
        recorded = public_lows(names)
        return PriceFigures(today=today, recorded=recorded, source=_public_source(recorded), faults=faults)

    def _today(self, names: tuple[str, ...]) -> tuple[tuple[LowPrice, ...], tuple[str, ...]]:
        wanted = OfferFilter(gpu_names=names, count_max=1, verified=self._rates_hosts)
        lows: list[LowPrice] = []
        faults: list[str] = []

        def search(name: str) -> ProviderOffers:
            return search_offers(self._adapters[name].market, wanted, Commission(), _ROWS)

        for outcome in run_in_parallel(list(self._adapters), search, _WITHIN_S * pace()):
            matches = () if outcome.result is None else outcome.result.matches
            prices = [match.price_microusd_gpu_hour for match in matches if self._is_reliable(match)]
            error = outcome.error if outcome.result is None else outcome.result.error
            if prices:
                lows.append(LowPrice(outcome.name, usd(round(min(prices)))))
            elif error:
                faults.append(f"{providers.info(outcome.name).title}: {error}")
        return tuple(lows), tuple(faults)

    def _is_reliable(self, match: Match) -> bool:
        return not self._rates_hosts or (match.offer.reliability or 0.0) >= MIN_RELIABILITY

    def _own_lows(self, names: Sequence[str]) -> tuple[LowPrice, ...]:
        """Of the last two weeks; none if the store cannot be read."""
        now = real_now()
        try:
            with open_store_read_only(self._settings) as store:
                reader = SqlHourlyLows(store, list(self._settings.providers), gpu_count=1)
                found = reader.hourly_lows(list(names), now - timedelta(days=_OWN_DAYS), now)
        except StoreError:
            return ()
        return low_prices(
            (provider, day, price)
            for (provider, _, _, is_spot), lows in found.items()
            if not is_spot
            for day, price in _by_day(lows)
        )


def all_rate_hosts(settings: Settings) -> bool:
    """Whether every enabled market says which hosts are verified; others would never match a watch that requires it."""
    return all(providers.info(name).rates_hosts for name in settings.providers)


@contextmanager
def open_market_reader(settings: Settings) -> Iterator[MarketReader]:
    """Read prices within the block."""
    http, stop = open_http(settings), threading.Event()
    try:
        adapters = build_adapters(settings, http, None, stop, is_patient=False)
        yield MarketReader(settings, adapters, rates_hosts=all_rate_hosts(settings))
    finally:
        stop.set()
        http.close()


def public_lows(names: Sequence[str]) -> tuple[LowPrice, ...]:
    """Public prices of these cards that come with gpuwatch: of one market, the one with the newest days."""
    text = files("gpuwatch.app.setup.first_watch").joinpath("recorded-lows.csv").read_text("utf-8")
    rows = DictReader(line for line in text.splitlines() if not line.startswith("#"))
    lows = low_prices((r["provider"], r["day"], Decimal(r["usd_gpu_hour"])) for r in rows if r["gpu"] in names)
    newest = max(lows, key=lambda low: low.day, default=None)
    return tuple(low for low in lows if newest is not None and low.provider == newest.provider)


def _public_source(lows: Sequence[LowPrice]) -> str:
    if not lows:
        return ""
    days = sorted(low.day for low in lows)
    return f"public prices of {providers.info(lows[0].provider).title}, {days[0]} to {days[-1]}"


def _by_day(lows: HourlyLows) -> Iterator[tuple[str, Decimal]]:
    for hour, low in zip(lows.hours, lows.lows, strict=True):
        yield f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%d}", Decimal(low) / MICRO
