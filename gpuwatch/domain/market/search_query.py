"""The query to a market: its filters, several queries joined into one, and the expected rows of its answer. Pure.

The rows are estimated from the prices on sale when they were last read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence

import msgspec

from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import NO_GPU, Offer

SaleKey = tuple[str, bool]  # canonical name of a GPU, spot


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query to a market. Filters only reduce the answer: gpuwatch checks every offer again.

    `gpus` are canonical names (an uncatalogued spelling stands for itself); empty: all models. `NO_GPU` alone: machines
    without GPUs, which no other query is about.
    """

    gpus: tuple[str, ...] = ()
    count_min: int = 1
    count_max: int | None = None
    spot: bool = False
    disk_gb: float | None = None  # None: the provider's default quote
    max_listed_usd_hour: float | None = None  # whole offer; None: no bound (a sweep)
    verified: bool | None = None
    min_reliability: float | None = None
    limit: int | None = None  # rows wanted, cheapest first; None: all (paged beyond the provider's cap)

    @property
    def wants_no_gpu(self) -> bool:
        """Whether it is about machines without GPUs."""
        return self.gpus == (NO_GPU,)


def query_of(gpu: str, *, spot: bool) -> Query:
    """Return the query for every offer of a GPU, or of machines without GPUs."""
    return Query(gpus=(gpu,), spot=spot) if gpu != NO_GPU else Query(gpus=(gpu,), count_min=0, count_max=0, spot=spot)


def can_join(one: Query, other: Query) -> bool:
    """Whether one query can replace both: same rental type, same quoted disk, both about GPUs or both about none."""
    if one.spot is not other.spot or one.disk_gb != other.disk_gb or one.wants_no_gpu is not other.wants_no_gpu:
        return False
    return bool(one.gpus) and bool(other.gpus)


def joined(queries: Sequence[Query], limit: int | None) -> Query:
    """The narrowest query whose complete answer contains the answers of all these queries, which must be joinable.

    Args:
        queries: not empty.
        limit: rows of the requested page.
    """
    first = queries[0]
    ceilings = [query.max_listed_usd_hour for query in queries]
    counts = [query.count_max for query in queries]
    least = [query.min_reliability for query in queries]
    verified = {query.verified for query in queries}
    return Query(
        gpus=tuple(dict.fromkeys(gpu for query in queries for gpu in query.gpus)),
        count_min=min(query.count_min for query in queries),
        count_max=None if None in counts else max(count for count in counts if count is not None),
        spot=first.spot,
        disk_gb=first.disk_gb,
        max_listed_usd_hour=None if None in ceilings else max(usd for usd in ceilings if usd is not None),
        verified=first.verified if len(verified) == 1 else None,
        min_reliability=None if None in least else min(share for share in least if share is not None),
        limit=limit,
    )


class SalePrice(msgspec.Struct, frozen=True, gc=False):
    """A historical offer with the facts that a search filters by; field names are those of `Offer`."""

    gpu_count: int
    quoted_usd_hour: float
    disk_usd_gb_month: float | None
    verified: bool | None = None
    reliability: float | None = None
    quoted_disk_gb: float = 0.0
    machine_id: str | None = None


OnSale = Offer | SalePrice


def listed_usd_hour(one: OnSale, disk_gb: float) -> float:
    """The listed price with a disk of this size."""
    return one.quoted_usd_hour + (one.disk_usd_gb_month or 0.0) * (disk_gb - one.quoted_disk_gb) / HOURS_A_MONTH


def passes_filters(one: OnSale, query: Query) -> bool:
    """Whether an offer passes the filters of a query, apart from the price; unknown facts pass."""
    if one.gpu_count < query.count_min or (query.count_max is not None and one.gpu_count > query.count_max):
        return False
    if query.verified is not None and one.verified not in {None, query.verified}:
        return False
    return query.min_reliability is None or one.reliability is None or one.reliability >= query.min_reliability


class ExpectedRows:
    """Estimates the number of rows of many queries from the prices of one moment.

    Args:
        on_sale: by GPU and rental type; a missing key was never read.
        default_disk_gb: the disk in a quote without a requested disk.
    """

    def __init__(self, on_sale: Mapping[SaleKey, Collection[OnSale]], default_disk_gb: float) -> None:
        self._on_sale = on_sale
        self._default_disk_gb = default_disk_gb
        self._sorted: dict[tuple[object, ...], list[float]] = {}

    def __call__(self, query: Query) -> float | None:
        """The number of offers that fit; None: nothing is known about a GPU of the query."""
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
            able = (one for one in self._on_sale[gpu, query.spot] if passes_filters(one, query))
            found = self._sorted[key] = sorted(listed_usd_hour(one, disk_gb) for one in able)
        return found
