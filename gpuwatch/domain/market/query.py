"""The query to a market, and how several queries are joined into one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query to a market. Filters only reduce the answer: gpuwatch checks every offer again.

    `gpus` are canonical names (an uncatalogued spelling stands for itself); empty: all models.
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


def can_join(one: Query, other: Query) -> bool:
    """Whether one query can replace both: same rental type, same quoted disk."""
    return one.spot is other.spot and one.disk_gb == other.disk_gb and bool(one.gpus) and bool(other.gpus)


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
