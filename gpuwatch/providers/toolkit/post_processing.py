"""Turns the parsed offers of an adapter into its answer: only those that match, cheapest first, unique."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import NoRowUnderstood
from gpuwatch.ports import Answer, Completeness, ProviderSettings, Query
from gpuwatch.ports.declarations import Tools

ID_LENGTH = 64  # of an offer id or a machine id: the size of the store's column
_REASONS_SHOWN = 3
_MAX_REASONS = 40  # of one answer
_NAME_LENGTH = 60  # of a name that is shown in a reason
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.+/-]")
_REASON_LENGTH = 200
PRICE_TOLERANCE_USD = 1e-6  # rounding error of a price, in dollars
_ID, _PRICE = attrgetter("offer_id"), attrgetter("quoted_usd_hour")
_IDENTITY = attrgetter("machine_id", "gpu", "gpu_count")
T = TypeVar("T")
_PRICE_WORDS = ("price", "cost", "usd", "fee", "dph", "bid")  # parts of the names of price fields


class RowSkipped(ValueError):
    """Why a row is not an offer: one short phrase, without values of the row."""


def stated(value: T | None, reason: str) -> T:
    """Return the value of a field. Raises RowSkipped, with the reason: it is not stated, or cannot be used."""
    if value is None:
        raise RowSkipped(reason)
    return value


def if_readable(parse: Callable[[Any], T], value: object) -> T | None:
    """Return a parsed value; None: it cannot be read. An odd value must not hide an instance that is billed."""
    try:
        return parse(value)
    except RowSkipped:
        return None


def unknown_name(reason: str, name: object) -> RowSkipped:
    """Return the error for a row whose name is in no table: such names are counted one by one, and shown."""
    shown = "".join(_NOT_IN_NAMES.sub(" ", name[:_NAME_LENGTH]) if isinstance(name, str) else "").strip()
    return RowSkipped(f"{reason}: {shown}" if shown else reason)


class ParseResult(msgspec.Struct, kw_only=True):
    """What an adapter parsed from one or more answers, and what it skipped.

    `skipped`: reason → rows; one short phrase for each distinct reason, without values of the row.
    """

    offers: list[Offer] = msgspec.field(default_factory=list)
    rows: int = 0
    searches: int = 1
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    drift: dict[str, None] = msgspec.field(default_factory=dict)
    partial: bool = False  # one of several searches failed
    missing: dict[str, None] = msgspec.field(default_factory=dict)  # what a partial answer lacks, and why

    def skip(self, reason: str) -> None:
        """Count a row that cannot be used. Of many names that are in no table, the rest is counted together."""
        if reason not in self.skipped and len(self.skipped) >= _MAX_REASONS:
            reason = f"{reason.partition(': ')[0]}: others"
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def note_missing(self, reason: str) -> None:
        """Mark the answer as partial: "region eu-west-1: HTTP 502"."""
        self.partial = True
        self.missing[reason] = None

    @contextmanager
    def counting_skips(self) -> Iterator[None]:
        """Count the row that the block reads if it raises `RowSkipped`."""
        try:
            yield
        except RowSkipped as reason:
            self.skip(str(reason))

    def add(self, other: ParseResult, source: str = "") -> None:
        """Merge another answer; `source` prefixes its reasons."""
        self.offers += other.offers
        self.rows += other.rows
        self.searches += other.searches
        self.partial |= other.partial
        self.missing |= {f"{source}: {reason}" if source else reason: None for reason in other.missing}
        self.drift |= other.drift
        self.add_skipped(other.skipped, source)

    def add_skipped(self, skipped: Mapping[str, int], source: str = "") -> None:
        """Count rows that were skipped elsewhere."""
        for reason, rows in skipped.items():
            prefixed = f"{source}: {reason}" if source else reason
            self.skipped[prefixed] = self.skipped.get(prefixed, 0) + rows

    def check_drift(
        self, row: Mapping[str, object], known_fields: frozenset[str], required_fields: frozenset[str]
    ) -> None:
        """Note new fields, and required fields that are gone."""
        for name in sorted(row.keys() - known_fields)[:5]:
            self.drift[f"new field: {name[:60]}"] = None
        for name in sorted(required_fields - row.keys()):
            self.drift[f"field gone: {name}"] = None

    def no_usable_row(self, message: str) -> NoRowUnderstood:
        """Return the error for rows of which none is usable: why, and whether a field that all of them lack is a price.

        Such an answer never counts as "no offers".
        """
        reasons = sorted(self.skipped.items(), key=lambda item: (-item[1], item[0]))[:_REASONS_SHOWN]
        if reasons:
            message += f" ({', '.join(f'{rows} × {reason}' for reason, rows in reasons)})"
        prefix = "field gone: "
        notes = (
            f"price {note}" if note.startswith(prefix) and any(word in note.lower() for word in _PRICE_WORDS) else note
            for note in self.drift
        )
        return NoRowUnderstood(message, self.rows, tuple(notes))


def short_id(*parts: str) -> str:
    """Return a readable id, shortened to the store's column so that it stays unique."""
    text = "/".join(parts)
    if len(text) <= ID_LENGTH:
        return text
    import hashlib  # noqa: PLC0415 - loads OpenSSL, and declarations of providers are read at every start

    return f"{text[: ID_LENGTH - 13]}~{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def build_answer(
    result: ParseResult,
    query: Query,
    provider: str,
    *,
    observed_at: datetime,
    elapsed_s: float,
    listable: Container[str] | None = None,
) -> Answer:
    """Build the answer to one query.

    Args:
        observed_at: when the provider answered; aware, UTC.
        listable: the GPUs of the adapter's table; None: it reads any.

    Raises:
        NoRowUnderstood: it has rows, but none is usable.
    """
    if result.rows and not result.offers and sum(result.skipped.values()) >= result.rows:
        raise result.no_usable_row(f"{provider}: none of {count_text(result.rows, 'row')} can be used")
    return Answer(
        provider=provider,
        observed_at=observed_at,
        offers=[_with_interconnect(offer) for offer in cheapest_first(matching(result.offers, query))],
        completeness=Completeness.PARTIAL if result.partial else Completeness.COMPLETE,
        rows=result.rows,
        searches=result.searches,
        skipped=dict(result.skipped),
        not_listed=() if listable is None else tuple(gpu for gpu in query.gpus if gpu not in listable),
        drift=tuple(result.drift),
        incomplete_because=_missing_text(result.missing, provider) if result.partial else "",
        elapsed_s=elapsed_s,
    )


class BasicMarket:
    """The base of a market: a subclass reads the offers, and the base builds the answer.

    Args:
        settings: the provider's.
    """

    listable: Container[str] | None = None  # the GPUs of the adapter's table; None: it reads any

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        self.name = settings.name
        self._tools = tools

    def search(self, query: Query) -> Answer:
        """Return matching offers; partial if some of them are missing. Raises ProviderError: no usable answer."""
        started_s, now = self._tools.monotonic(), self._tools.now()
        result, elapsed_s = self._read(query, now), self._tools.monotonic() - started_s
        return build_answer(result, query, self.name, observed_at=now, elapsed_s=elapsed_s, listable=self.listable)

    def _read(self, query: Query, now: datetime) -> ParseResult:
        """Return the offers for a query; others are left out later. Raises ProviderError."""
        raise NotImplementedError


def _with_interconnect(offer: Offer) -> Offer:
    """Add the GPU interconnect if the provider does not state it but the card's name implies it.

    Assumption: whole SXM boards and NVL cards are sold with their NVLink.
    """
    terms = offer.terms
    if terms.interconnect is not None or offer.gpu_count < 2 or terms.gpu_fraction != 1.0:
        return offer
    if "SXM" not in offer.gpu and not offer.gpu.endswith(" NVL"):
        return offer
    return msgspec.structs.replace(offer, terms=msgspec.structs.replace(terms, interconnect="NVLink"))


def _missing_text(reasons: Iterable[str], provider: str) -> str:
    shortened = [reason.replace(f"{provider}: ", "")[:_REASON_LENGTH] for reason in reasons]
    rest = [f"and {len(shortened) - _REASONS_SHOWN} more"] if len(shortened) > _REASONS_SHOWN else []
    return "; ".join(shortened[:_REASONS_SHOWN] + rest)


def matching(offers: Iterable[Offer], query: Query) -> list[Offer]:
    """Return the offers that match a query, without those whose end has passed. Filters of servers are not trusted."""
    spot, min_count = query.spot, query.count_min
    found = [
        offer
        for offer in offers
        if offer.rentable
        and offer.spot is spot
        and offer.gpu_count >= min_count
        and (offer.available_until is None or offer.available_until > offer.observed_at)
    ]
    if query.count_max is not None:
        found = [offer for offer in found if offer.gpu_count <= query.count_max]
    if query.gpus:
        found = [offer for offer in found if offer.gpu in query.gpus]
    if query.verified is not None:
        found = [offer for offer in found if offer.verified is query.verified]
    if query.min_reliability is not None:
        found = [offer for offer in found if (offer.reliability or 0.0) >= query.min_reliability]
    if query.max_listed_usd_hour is not None:
        max_usd_hour = query.max_listed_usd_hour + PRICE_TOLERANCE_USD
        found = [offer for offer in found if listed_usd_hour(offer, query) <= max_usd_hour]
    return found


def listed_usd_hour(offer: Offer, query: Query) -> float:
    """The listed price, precise enough for a filter; `pricing` computes it exactly."""
    if query.disk_gb is None or not offer.disk_usd_gb_month:
        return offer.quoted_usd_hour
    return offer.quoted_usd_hour + offer.disk_usd_gb_month * (query.disk_gb - offer.quoted_disk_gb) / HOURS_A_MONTH


def cheapest_first(offers: Iterable[Offer]) -> list[Offer]:
    """Sort by price, then by id; keep only the cheapest of each identity."""
    found = list(offers)
    # as received, and by hash: an offer that is out of the processor's cache, or a tuple that stays, costs more
    identities = len(set(map(hash, map(_IDENTITY, found))))
    ordered = sorted(sorted(found, key=_ID), key=_PRICE)  # two sorts are faster than one by both keys
    if identities == len(found):
        return ordered
    first: dict[object, Offer] = {}
    for offer in ordered:
        key = _IDENTITY(offer)
        first.setdefault(key if key[0] else (f"offer:{offer.offer_id}", *key[1:]), offer)
    return list(first.values())
