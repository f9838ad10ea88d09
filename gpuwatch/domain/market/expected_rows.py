"""How many rows an answer will have, from the prices that were on sale when they were last read. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

import msgspec

from gpuwatch.domain.market.pricing import HOURS_A_MONTH
from gpuwatch.domain.market.query import Query

SaleKey = tuple[str, bool]  # canonical name of a GPU, spot


class SalePrice(msgspec.Struct, frozen=True, gc=False):
    """One offer on sale, as far as a search filters by it."""

    gpu_count: int
    machine_usd_hour: float  # listed, of the whole offer without disk
    disk_usd_gb_month: float
    verified: bool | None = None
    reliability: float | None = None

    def listed_usd_hour(self, disk_gb: float) -> float:
        """The listed price with a disk of this size."""
        return self.machine_usd_hour + self.disk_usd_gb_month * disk_gb / HOURS_A_MONTH

    def fits(self, query: Query) -> bool:
        """Whether the filters of a query let it through, but for the price; what is not known of it does."""
        if self.gpu_count < query.count_min or (query.count_max is not None and self.gpu_count > query.count_max):
            return False
        if query.verified is not None and self.verified not in {None, query.verified}:
            return False
        return query.min_reliability is None or self.reliability is None or self.reliability >= query.min_reliability


class ExpectedRows:
    """The prices of a moment, to be asked about many queries.

    Args:
        on_sale: by GPU and rental type; one that is missing was never read.
        default_disk_gb: in a quote, if no disk is asked for.
    """

    def __init__(self, on_sale: Mapping[SaleKey, Iterable[SalePrice]], default_disk_gb: float) -> None:
        self._on_sale = on_sale
        self._default_disk_gb = default_disk_gb
        self._sorted: dict[tuple[object, ...], list[float]] = {}

    def __call__(self, query: Query) -> float | None:
        """How many offers fit; None: of a GPU of the query nothing is known."""
        if not query.gpus or any((gpu, query.spot) not in self._on_sale for gpu in query.gpus):
            return None
        most = query.max_listed_usd_hour
        found = (self._prices(gpu, query) for gpu in query.gpus)
        return float(sum(len(prices) if most is None else bisect_right(prices, most) for prices in found))

    def _prices(self, gpu: str, query: Query) -> list[float]:
        disk_gb = self._default_disk_gb if query.disk_gb is None else query.disk_gb
        counts = (query.count_min, query.count_max)
        key = (gpu, query.spot, counts, disk_gb, query.verified, query.min_reliability)
        found = self._sorted.get(key)
        if found is None:
            able = (one for one in self._on_sale[gpu, query.spot] if one.fits(query))
            found = self._sorted[key] = sorted(one.listed_usd_hour(disk_gb) for one in able)
        return found
