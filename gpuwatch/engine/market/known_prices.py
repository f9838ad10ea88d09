"""What a daemon knows about prices without reading the store: their ranks, and what is on sale.

- `PriceRanks`: ranks in the price history, so that an alert states the rank of its price at once; also the hours at
  which low prices arrive.
- `PricesOnSale`: the current offers at one provider, from the history and every answer since; they estimate the rows of
  a query.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from gpuwatch.domain.history.past_lows import (
    WINDOW_DAYS,
    HourlyLows,
    PriceRank,
    arrivals_at,
    joined_lows,
    rank_in,
    rank_price,
)
from gpuwatch.domain.market.money import MICRO, Commission
from gpuwatch.domain.market.offer import Offer, OfferKind, priced_units
from gpuwatch.domain.market.search_query import ExpectedRows, OnSale, Query, SaleKey, listed_usd_hour, passes_filters
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.ports import Answer, Completeness
from gpuwatch.ports.store import HourlyLowsReader

REFRESH_EVERY = timedelta(hours=1)  # the history has hourly values, so more often is useless
_OVERLAP = timedelta(hours=4)  # a poll applies for hours after it, and an hour is stored after its end
_HAIR = 1e-6  # rounding tolerance of a price, in dollars
_name = attrgetter("machine_id", "gpu_count")


_Lows = Mapping[tuple[str, OfferKind, str, bool], HourlyLows]  # by provider, kind of price, GPU, spot


class PriceRanks:
    """The price ranks of some GPUs' offers. One task refreshes them; hunts read them at any time.

    Args:
        gpus: None: all.
        verified_gpus: those whose verified hosts have ranks of their own; None: all.
        disk_gb: the disk that the history's prices include.
        commissions: by provider; default: no commission.
    """

    def __init__(
        self,
        reader: HourlyLowsReader,
        gpus: Collection[str] | None,
        disk_gb: float,
        commissions: Mapping[str, Commission],
        verified_gpus: Collection[str] | None = (),
    ) -> None:
        self._reader = reader
        self._gpus = gpus
        self._verified_gpus = verified_gpus
        self._disk_gb = disk_gb
        self._rates = {name: float(commission.on_top_rate(None)) for name, commission in commissions.items()}
        self._lows: _Lows = {}
        self._of_verified: _Lows = {}
        self._of_all: Mapping[tuple[OfferKind, str, bool, bool], HourlyLows] = {}  # the last: of verified hosts
        self._read_at: datetime | None = None

    def refresh_if_due(self, now: datetime) -> bool:
        """Read the history again if an hour has passed. After a StoreError the old ranks stay valid."""
        read_at = self._read_at
        if read_at is not None and timedelta(0) <= now - read_at < REFRESH_EVERY:  # also after a clock stepped back
            return False
        self._lows = self._reader.hourly_lows(self._gpus, now - timedelta(days=WINDOW_DAYS), now)
        self._of_verified = self._verified_lows(now)
        parts: defaultdict[tuple[OfferKind, str, bool, bool], list[tuple[HourlyLows, float]]] = defaultdict(list)
        for is_verified, known in ((False, self._lows), (True, self._of_verified)):
            for (provider, kind, gpu, spot), lows in known.items():
                parts[kind, gpu, spot, is_verified].append((lows, 1 + self._rates.get(provider, 0.0)))
        self._of_all = {part: joined_lows(of_part) for part, of_part in parts.items()}
        self._read_at = now
        return True

    def _verified_lows(self, now: datetime) -> _Lows:
        """Read only what followed the last reading: each hour of them is computed from all its prices."""
        gpus, begins, read_at = self._verified_gpus, now - timedelta(days=WINDOW_DAYS), self._read_at
        if gpus is not None and not gpus:
            return {}
        known: _Lows = {}
        if read_at is not None and read_at <= now:
            known, begins = self._of_verified, max(begins, read_at - _OVERLAP)
        newer = self._reader.hourly_lows(gpus, begins, now, verified=True)
        first_hour = int((now - timedelta(days=WINDOW_DAYS)).timestamp()) // HOUR_S
        joined = {
            part: joined_lows(((one[part], 1.0) for one in (known, newer) if part in one), first_hour)
            for part in {*known, *newer}
        }
        return {part: lows for part, lows in joined.items() if lows.hours}

    def arrivals(self, provider: str, query: Query, now: datetime) -> float:
        """Return how much likelier a price under the query's limit is at this hour than at other hours of the day."""
        if query.max_listed_usd_hour is None:
            return 1.0
        most = query.max_listed_usd_hour / priced_units(query.count_max or query.count_min) * MICRO
        known = (self._lows.get((provider, OfferKind.LIVE, gpu, query.spot)) for gpu in query.gpus)
        hour = now.astimezone(UTC).hour
        return max((arrivals_at(history, most, hour) for history in known if history is not None), default=1.0)

    def rank_of(self, offer: Offer, verified: bool) -> PriceRank | None:
        """Return the rank among the prices of all providers for this GPU and rental type; None: too little is known.

        Args:
            verified: among those of verified hosts alone.
        """
        history = self._of_all.get((offer.kind, offer.gpu, offer.spot, verified))
        if history is None:
            return None
        return rank_in(history, rank_price(offer, self._disk_gb, self._rates.get(offer.provider, 0.0)))


class PricesOnSale:
    """The newest known prices of the GPUs that are read. Thread-safe: hunts and sweeps add answers from their threads.

    Args:
        default_disk_gb: the disk in a quote if none is requested.
    """

    def __init__(self, default_disk_gb: float) -> None:
        self._default_disk_gb = default_disk_gb
        self._known: dict[SaleKey, Sequence[OnSale]] = {}  # values are replaced, never modified
        self.changes = 0  # number of answers that differed from the previous state
        self._lock = threading.Lock()

    def begin_with(self, history: Mapping[SaleKey, Sequence[OnSale]]) -> None:
        """Add what an earlier process read; answers received since take precedence."""
        with self._lock:
            self._known = {**history, **self._known}

    @property
    def known_gpus(self) -> int:
        """The number of GPUs, by rental type, that have been read completely."""
        return len(self._known)

    def learn(self, query: Query, answer: Answer) -> None:
        """Add an answer: offers that it lacks are gone, up to the price to which it is complete.

        A GPU counts as known after one query for all its offers (by a sweep).
        """
        ceiling = query.max_listed_usd_hour
        if answer.completeness is Completeness.TRUNCATED:
            ceiling = answer.complete_to_usd_hour
            if ceiling is None:
                return
        elif answer.completeness is not Completeness.COMPLETE:
            return
        shown: defaultdict[str, list[OnSale]] = defaultdict(list, {gpu: [] for gpu in query.gpus})
        for offer in answer.offers:
            shown[offer.gpu].append(offer)
        is_everything = ceiling is None and query.count_max is None and query.verified is None
        with self._lock:
            has_news = False
            for gpu, offers in shown.items():
                key = gpu, query.spot
                if key in self._known or is_everything:
                    current = offers + self._hidden(self._known.get(key, ()), query, ceiling, offers)
                    has_news = has_news or key not in self._known or self._has_news(self._known[key], current)
                    self._known[key] = current
            self.changes += has_news

    def cheapest_usd_hour(self, query: Query) -> float | None:
        """Return the lowest listed price that fits a query apart from its limit; None: none, or unknown."""
        disk_gb = self._default_disk_gb if query.disk_gb is None else query.disk_gb
        with self._lock:
            prices = [one for gpu in query.gpus for one in self._known.get((gpu, query.spot), ())]
        return min((listed_usd_hour(price, disk_gb) for price in prices if passes_filters(price, query)), default=None)

    def expected_rows(self) -> ExpectedRows:
        """Return an estimator for the rows of answers, as of now."""
        with self._lock:
            return ExpectedRows(dict(self._known), self._default_disk_gb)

    def _hidden(
        self, before: Sequence[OnSale], query: Query, ceiling: float | None, shown: Sequence[OnSale]
    ) -> list[OnSale]:
        """Return what a query cannot show of the offers known before."""
        if ceiling is None and query == Query(gpus=query.gpus, spot=query.spot, disk_gb=query.disk_gb):
            return []  # it shows everything
        disk_gb = self._default_disk_gb if query.disk_gb is None else query.disk_gb
        names = set(map(_name, shown))
        return [
            one
            for one in before
            if _name(one) not in names
            and not (
                passes_filters(one, query) and (ceiling is None or listed_usd_hour(one, disk_gb) <= ceiling + _HAIR)
            )
        ]

    def _has_news(self, before: Sequence[OnSale], current: Sequence[OnSale]) -> bool:
        """Whether any of these offers is new, or changed in a way that affects searches."""
        known, now = ({_name(one): self._facts(one) for one in offers} for offers in (before, current))
        return len(before) != len(current) or known != now

    def _facts(self, one: OnSale) -> tuple[float, bool | None, float | None]:
        return round(listed_usd_hour(one, self._default_disk_gb), 6), one.verified, one.reliability
