"""What is on sale at one provider, learnt from the history and every answer since: so many rows can be expected."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from gpuwatch.domain.market.expected_rows import ExpectedRows, SaleKey, SalePrice
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import HOURS_A_MONTH
from gpuwatch.domain.market.query import Query
from gpuwatch.ports import Answer, Completeness

_Key = tuple[str | None, int]  # machine, GPUs
_HAIR = 1e-6  # a price's last digits, in dollars


class PricesOnSale:
    """The newest known prices of the GPUs that are read. Hunts and sweeps teach it, each on its own thread.

    Args:
        default_disk_gb: in a quote, if no disk is asked for.
    """

    def __init__(self, default_disk_gb: float) -> None:
        self._default_disk_gb = default_disk_gb
        self._known: dict[SaleKey, dict[_Key, SalePrice]] = {}
        self.changes = 0  # how often an answer showed something else than the one before
        self._lock = threading.Lock()

    def begin_with(self, history: Mapping[SaleKey, Mapping[_Key, SalePrice]]) -> None:
        """Take over what an earlier process read; what was learnt since is newer."""
        with self._lock:
            self._known = {key: dict(prices) for key, prices in history.items()} | self._known

    @property
    def known_gpus(self) -> int:
        """How many GPUs, by rental type, were read completely so far."""
        return len(self._known)

    def learn(self, query: Query, answer: Answer) -> None:
        """Take over an answer: up to the price that it is complete to, what it does not show is gone.

        A GPU counts as known once everything of it was asked for (by a sweep).
        """
        ceiling = query.max_listed_usd_hour
        if answer.completeness is Completeness.TRUNCATED:
            ceiling = answer.complete_to_usd_hour
            if ceiling is None:
                return
        elif answer.completeness is not Completeness.COMPLETE:
            return
        shown: dict[str, list[Offer]] = {gpu: [] for gpu in query.gpus}
        for offer in answer.offers:
            shown.setdefault(offer.gpu, []).append(offer)
        is_everything = ceiling is None and query.count_max is None and query.verified is None
        with self._lock:
            for gpu, offers in shown.items():
                if (gpu, query.spot) in self._known or is_everything:
                    self._replace((gpu, query.spot), query, ceiling, offers)

    def cheapest_usd_hour(self, query: Query) -> float | None:
        """The lowest listed price that fits a query but for its limit; None: there is none, or it is not known."""
        disk_gb = self._default_disk_gb if query.disk_gb is None else query.disk_gb
        with self._lock:
            prices = [one for gpu in query.gpus for one in self._known.get((gpu, query.spot), {}).values()]
        return min((one.listed_usd_hour(disk_gb) for one in prices if one.fits(query)), default=None)

    def expected_rows(self) -> ExpectedRows:
        """What answers are expected to hold, as of now."""
        with self._lock:
            copied = {key: tuple(prices.values()) for key, prices in self._known.items()}
        return ExpectedRows(copied, self._default_disk_gb)

    def _replace(self, key: SaleKey, query: Query, ceiling: float | None, offers: Sequence[Offer]) -> None:
        disk_gb = self._default_disk_gb if query.disk_gb is None else query.disk_gb
        kept = {
            name: price
            for name, price in self._known.get(key, {}).items()
            if not price.fits(query) or (ceiling is not None and price.listed_usd_hour(disk_gb) > ceiling + _HAIR)
        }
        kept.update({(offer.machine_id, offer.gpu_count): _sale_price(offer) for offer in offers})
        if self._known.get(key) != kept:
            self._known[key] = kept
            self.changes += 1


def _sale_price(offer: Offer) -> SalePrice:
    disk = offer.disk_usd_gb_month or 0.0
    machine = offer.quoted_usd_hour - disk * offer.quoted_disk_gb / HOURS_A_MONTH
    return SalePrice(offer.gpu_count, machine, disk, offer.verified, offer.reliability)
