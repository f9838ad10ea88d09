"""From an adapter's offers to its answer: only what was asked for, cheapest first, no identity twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import attrgetter

import msgspec

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import HOURS_A_MONTH
from gpuwatch.ports import Answer, Completeness, Query

_HAIR = 1e-6  # a price's last digits, in dollars


class ParseResult(msgspec.Struct, kw_only=True):
    """What an adapter understood of one or several answers, and what not.

    `skipped`: reason → rows; one short phrase for each distinct reason, without the row's own values.
    """

    offers: list[Offer] = msgspec.field(default_factory=list)
    rows: int = 0
    searches: int = 1
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    drift: dict[str, None] = msgspec.field(default_factory=dict)
    partial: bool = False  # one of several searches failed

    def skip(self, reason: str) -> None:
        """A row was not understood."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def check_drift(self, row: Mapping[str, object], known: frozenset[str], needed: frozenset[str]) -> None:
        """Note fields that are new, and needed ones that are gone."""
        for name in sorted(row.keys() - known)[:5]:
            self.drift[f"new field: {name[:60]}"] = None
        for name in sorted(needed - row.keys()):
            self.drift[f"field gone: {name}"] = None


def build_answer(seen: ParseResult, query: Query, provider: str, *, observed_at: datetime, elapsed_s: float) -> Answer:
    """The answer to one query.

    Args:
        observed_at: aware, UTC: when the provider said it.
    """
    return Answer(
        provider=provider,
        observed_at=observed_at,
        offers=cheapest_first(offer for offer in seen.offers if matches_query(offer, query)),
        completeness=Completeness.PARTIAL if seen.partial else Completeness.COMPLETE,
        rows=seen.rows,
        searches=seen.searches,
        skipped=dict(seen.skipped),
        drift=tuple(seen.drift),
        elapsed_s=elapsed_s,
    )


def matches_query(offer: Offer, query: Query) -> bool:
    """Whether an offer is one that was asked for: no server is trusted to filter."""
    return (
        offer.rentable
        and offer.spot is query.spot
        and query.count_min <= offer.gpu_count
        and (query.count_max is None or offer.gpu_count <= query.count_max)
        and (not query.gpus or offer.gpu in query.gpus)
        and (query.verified is None or offer.verified is query.verified)
        and (query.min_reliability is None or (offer.reliability or 0.0) >= query.min_reliability)
        and (query.max_listed_usd_hour is None or listed_usd_hour(offer, query) <= query.max_listed_usd_hour + _HAIR)
    )


def listed_usd_hour(offer: Offer, query: Query) -> float:
    """Near enough for a filter; `pricing` reckons exactly."""
    if query.disk_gb is None or not offer.disk_usd_gb_month:
        return offer.quoted_usd_hour
    return offer.quoted_usd_hour + offer.disk_usd_gb_month * (query.disk_gb - offer.quoted_disk_gb) / HOURS_A_MONTH


def cheapest_first(offers: Iterable[Offer]) -> list[Offer]:
    """Cheapest first; of one identity only the cheapest."""
    seen: set[tuple[str | None, str, int]] = set()
    kept = []
    by_id = sorted(offers, key=attrgetter("offer_id"))
    for offer in sorted(by_id, key=attrgetter("quoted_usd_hour")):  # twice by one is quicker than once by two
        key = (offer.machine_id or f"offer:{offer.offer_id}", offer.gpu, offer.gpu_count)
        if key not in seen:
            seen.add(key)
            kept.append(offer)
    return kept
