"""The port to a marketplace: a query (`domain.market.query`) and its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.query import Query
from gpuwatch.ports.findings import Finding

HUNT = "hunt"  # the lanes of a provider: small searches at a watch's limit
SWEEP = "sweep"  # … and everything there is, for the history
LANES = (HUNT, SWEEP)


class Completeness(StrEnum):
    """How much of what was asked for an answer holds."""

    COMPLETE = "complete"  # everything that fits the query
    TRUNCATED = "truncated"  # the provider cut it (rows == limit) and it could not be split further
    PARTIAL = "partial"  # some of the searches behind it failed


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a market answered: cheapest first, no identity twice.

    `complete_to_usd_hour`: with TRUNCATED, offers are all known up to this listed price of the whole offer.
    """

    provider: str
    observed_at: datetime
    offers: Sequence[Offer]
    completeness: Completeness
    rows: int  # rows returned, counted against the quota
    searches: int = 1
    skipped: Mapping[str, int] = {}  # reason → rows that were not understood
    drift: Sequence[str] = ()  # "new field: x", "field gone: y"; each reported once
    complete_to_usd_hour: float | None = None
    incomplete_because: str = ""  # why what was asked for may be missing, one line; empty: not stated
    elapsed_s: float = 0.0


class Market(Protocol):
    """A provider's search side."""

    name: str

    def search(self, query: Query) -> Answer:
        """Offers that fit. May wait for the provider's search interval.

        Raises:
            ProviderError: no usable answer at all.
        """


@runtime_checkable
class SelfChecking(Protocol):
    """A `Market` with more to say to `gpuwatch doctor` than whether it answers."""

    def findings(self) -> Iterable[Finding]:
        """What is worth knowing at this moment; it asks nobody."""
