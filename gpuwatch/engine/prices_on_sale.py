"""Current offers at one provider, from the history and every answer since; used to estimate the rows of a query."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping

from gpuwatch.domain.market.expected_rows import ExpectedRows, OnSale, SaleKey, fits, listed_usd_hour
from gpuwatch.domain.market.query import Query
from gpuwatch.ports import Answer, Completeness

_Key = tuple[str | None, int]  # machine, GPUs
_HAIR = 1e-6  # rounding tolerance of a price, in dollars


class PricesOnSale:
    """The newest known prices of the GPUs that are read. Thread-safe: hunts and sweeps add answers from their threads.

    Args:
        default_disk_gb: the disk in a quote if none is requested.
    """

    def __init__(self, default_disk_gb: float) -> None:
        self._default_disk_gb = default_disk_gb
        self._known: dict[SaleKey, Mapping[_Key, OnSale]] = {}  # values are replaced, never modified
        self.changes = 0  # number of answers that differed from the previous state
        self._lock = threading.Lock()

    def begin_with(self, history: Mapping[SaleKey, Mapping[_Key, OnSale]]) -> None:
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
        shown: defaultdict[str, dict[_Key, OnSale]] = defaultdict(dict, {gpu: {} for gpu in query.gpus})
        for offer in answer.offers:
            shown[offer.gpu][offer.machine_id, offer.gpu_count] = offer
        is_everything = ceiling is None and query.count_max is None and query.verified is None
        with self._lock:
            for gpu, offers in shown.items():
                if (gpu, query.spot) in self._known or is_everything:
                    self._replace((gpu, query.spot), query, ceiling, offers)

    def cheapest_usd_hour(self, query: Query) -> float | None:
        """Return the lowest listed price that fits a query apart from its limit; None: none, or unknown."""
        disk_gb = self._default_disk_gb if query.disk_gb is None else query.disk_gb
        with self._lock:
            prices = [one for gpu in query.gpus for one in self._known.get((gpu, query.spot), {}).values()]
        return min((listed_usd_hour(price, disk_gb) for price in prices if fits(price, query)), default=None)

    def expected_rows(self) -> ExpectedRows:
        """Return an estimator for the rows of answers, as of now."""
        with self._lock:
            on_sale = {key: prices.values() for key, prices in self._known.items()}
        return ExpectedRows(on_sale, self._default_disk_gb)

    def _replace(self, key: SaleKey, query: Query, ceiling: float | None, shown: dict[_Key, OnSale]) -> None:
        """Replace what is known of a GPU by what a query shows, and what it cannot show."""
        disk_gb = self._default_disk_gb if query.disk_gb is None else query.disk_gb
        before = self._known.get(key, {})
        for name in [name for name in before if name not in shown]:
            one = before[name]
            if not fits(one, query) or (ceiling is not None and listed_usd_hour(one, disk_gb) > ceiling + _HAIR):
                shown[name] = one
        if key not in self._known or len(shown) != len(before) or self._has_news(before, shown):
            self.changes += 1
        self._known[key] = shown

    def _has_news(self, before: Mapping[_Key, OnSale], shown: Mapping[_Key, OnSale]) -> bool:
        """Whether any of these offers is new, or changed in a way that affects searches."""
        for name, one in shown.items():
            was = before.get(name)
            # an adapter's copy of an unchanged offer shares its value objects, so identity is a quick test
            if was is None or (was.quoted_usd_hour is not one.quoted_usd_hour and self._facts(was) != self._facts(one)):
                return True
        return False

    def _facts(self, one: OnSale) -> tuple[float, bool | None, float | None]:
        return round(listed_usd_hour(one, self._default_disk_gb), 6), one.verified, one.reliability
