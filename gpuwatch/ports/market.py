"""The port to a marketplace: a query (`domain.market.search_query`) and its answer; and the ports of its pace.

A hold says until when a provider accepts no more requests; it is stored over a restart. A turn is the right to send
one search, where daemons of several owners use one account.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.search_query import Query
from gpuwatch.ports.findings import Finding

HUNT = "hunt"  # the lanes of a provider: small searches at a watch's limit
SWEEP = "sweep"  # … and everything there is, for the history
LANES = (HUNT, SWEEP)


class Completeness(StrEnum):
    """How much of the requested data an answer contains."""

    COMPLETE = "complete"  # everything that matches the query
    TRUNCATED = "truncated"  # the provider truncated it (rows == limit), and it could not be split further
    PARTIAL = "partial"  # some of its searches failed


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a market: cheapest first, no duplicate identities.

    `complete_to_usd_hour`: for TRUNCATED, all offers up to this listed price of the whole offer are included.
    `not_listed`: GPUs of the query that no answer of this provider can contain: it has no name for them, or its adapter
    reads only the machines of a table.
    """

    provider: str
    observed_at: datetime
    offers: Sequence[Offer]
    completeness: Completeness
    rows: int  # returned rows, counted against the quota
    searches: int = 1
    skipped: Mapping[str, int] = {}  # reason → rows that could not be parsed
    not_listed: Collection[str] = ()
    drift: Sequence[str] = ()  # "new field: x", "field gone: y"; each is reported once
    complete_to_usd_hour: float | None = None
    incomplete_because: str = ""  # one line: why data may be missing; empty: not stated
    elapsed_s: float = 0.0


class Market(Protocol):
    """A provider's search side."""

    name: str

    def search(self, query: Query) -> Answer:
        """Matching offers. May wait for the provider's search interval.

        Raises:
            ProviderError: no usable answer.
        """


@runtime_checkable
class SelfChecking(Protocol):
    """A `Market` with additional findings for `gpuwatch doctor`."""

    def findings(self) -> Iterable[Finding]:
        """Current findings; sends no request."""


class ProviderHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a provider answers on one lane; stored."""

    complete_at: datetime | None = None  # the newest complete answer
    blind_since: datetime | None = None
    last_error: str | None = None
    not_understood: bool = False  # blind because no row was understood; ends only with an understood row
    reported: bool = True  # False: blind as well, but covered by another lane's alert


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A provider accepts no more requests of one class before a given time."""

    provider: str
    kind: str  # the class of requests: "search"
    set_at: datetime
    until: datetime  # from then on, one request is allowed
    reason: str  # one line: what the provider said
    quota_resets_at: datetime | None = None  # the day's quota is used up until then; None: only asked too often


class HoldStore(Protocol):
    """The holds of all providers, one per class. No method raises: a broken store must not stop polling."""

    def load(self, provider: str) -> Sequence[Hold]:
        """The last hold of each class, current or past; none if they cannot be read."""

    def save(self, hold: Hold) -> None:
        """Store it in place of the last one of its class, if possible."""


class SearchTurns(Protocol):
    """The turns of searches with one account, over all processes that use it. Neither raises an error."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes may search with this account, so that each search needs a turn."""

    def take(self, interval_s: float) -> float | None:
        """Take the next turn; return the seconds until it begins.

        Args:
            interval_s: how long the turn lasts: nobody else searches meanwhile.

        Returns:
            None: unknown for now, and none was taken; send no search.
        """
