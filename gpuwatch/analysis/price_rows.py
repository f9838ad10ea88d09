"""Price rows: one listed price of one offer at one moment, as files in nine columns hold them, and the tape they make.

Columns: `observed_at` (UTC, RFC 3339 with Z), `provider` ("vastai"; behind a colon, a seller), `offer_key`, `region`,
`gpu_name_raw`, `gpu_count`, `gpu_mem_gib` (of one GPU; may be empty), `spot` (true or false), `price_usd_hour` (listed,
whole offer, no commission). A row says that this was listed at that moment; a moment at which an offer has no row says
that it was not. So each moment of a file is a look at all that the file is about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache

import msgspec

from gpuwatch.analysis.tape import Listing, Poll, Spell, Tape
from gpuwatch.market.gpu_names import catalog, clean_name
from gpuwatch.market.offer import Identity, OfferKind
from gpuwatch.market.pricing import MAX_USD_HOUR, microusd
from gpuwatch.market.text import clean

COLUMNS = (
    "observed_at",
    "provider",
    "offer_key",
    "region",
    "gpu_name_raw",
    "gpu_count",
    "gpu_mem_gib",
    "spot",
    "price_usd_hour",
)
MOST_GPUS = 1024
_SWITCH = {"true": True, "false": False}


class PriceRow(msgspec.Struct, frozen=True, gc=False):
    """One row, understood."""

    at_s: int
    provider: str  # without the seller
    seller: str | None
    offer_key: str
    region: str | None
    gpu_wire: str
    gpu_count: int
    gpu_memory_gib: float | None
    spot: bool
    listed_microusd_hour: int


def read_row(cells: Mapping[str, str | None]) -> PriceRow:
    """One row of a file.

    Args:
        cells: column → text.

    Raises:
        ValueError: it makes no sense; the message names the column.
    """
    provider, _, seller = _word(cells, "provider", 32 + 1 + 64).partition(":")
    if not provider or len(provider) > 20:  # the history puts a word of its own behind it
        raise ValueError("provider: expected a short name")
    return PriceRow(
        _moment(cells.get("observed_at") or ""),
        provider,
        seller or None,
        _word(cells, "offer_key", 64),
        clean(cells.get("region") or "")[:200] or None,
        _word(cells, "gpu_name_raw", 200),
        _count(cells.get("gpu_count") or ""),
        _memory(cells.get("gpu_mem_gib") or ""),
        _spot(cells.get("spot") or ""),
        _price(cells.get("price_usd_hour") or ""),
    )


def tape_of(rows: Iterable[PriceRow], source: str, kinds: Mapping[str, OfferKind] | None = None) -> Tape:
    """The tape that rows make; of one offer twice at one moment, the cheaper price counts.

    Args:
        kinds: provider → what its prices are; one that is not named is live.
    """
    moments: dict[int, dict[Identity, PriceRow]] = {}
    for row in rows:
        seen, identity = moments.setdefault(row.at_s, {}), identity_of(row)
        if identity not in seen or row.listed_microusd_hour < seen[identity].listed_microusd_hour:
            seen[identity] = row
    times = sorted(moments)
    listings: dict[Identity, Listing] = {}
    for at_s in times:
        listings.update((identity, listing_of(row, kinds or {})) for identity, row in moments[at_s].items())
    numbers = {identity: number for number, identity in enumerate(listings)}
    scopes = sorted({(identity.provider, identity.spot) for identity in listings})
    polls = [Poll(at_s, provider, "", spot, True) for at_s in times for provider, spot in scopes]
    return Tape(listings=tuple(listings.values()), spells=_spells(times, moments, numbers), polls=polls, source=source)


def identity_of(row: PriceRow) -> Identity:
    """Who it is: the key that the file gives, for a machine's name it has none."""
    return Identity(row.provider, row.offer_key, _gpu(row.gpu_wire, row.gpu_memory_gib)[0], row.gpu_count, row.spot)


def listing_of(row: PriceRow, kinds: Mapping[str, OfferKind]) -> Listing:
    """What is known of it."""
    country = (row.region or "").rpartition(",")[2].strip()
    return Listing(
        identity=identity_of(row),
        gpu_family=_gpu(row.gpu_wire, row.gpu_memory_gib)[1],
        offer_id=row.offer_key.partition("/")[0],
        gpu_memory_gib=row.gpu_memory_gib,
        kind=kinds.get(row.provider, OfferKind.LIVE),
        region=row.region,
        country=country if len(country) == 2 and country.isalpha() and country.isupper() else None,
    )


def _spells(
    times: Sequence[int], moments: Mapping[int, Mapping[Identity, PriceRow]], numbers: Mapping[Identity, int]
) -> list[Spell]:
    made: list[Spell] = []
    standing: dict[Identity, tuple[int, int]] = {}  # identity → (first seen, price)
    before_s = 0
    for at_s in times:
        seen = moments[at_s]
        over = [who for who, (_, price) in standing.items() if who not in seen or _price_of(seen, who) != price]
        for who in over:
            from_s, price = standing.pop(who)
            made.append(Spell(numbers[who], from_s, before_s, at_s, price, None))
        for who, row in seen.items():
            standing.setdefault(who, (at_s, row.listed_microusd_hour))
        before_s = at_s
    made += [Spell(numbers[who], from_s, before_s, None, price, None) for who, (from_s, price) in standing.items()]
    return sorted(made, key=lambda spell: (spell.from_s, spell.listing))


def _price_of(seen: Mapping[Identity, PriceRow], who: Identity) -> int:
    return seen[who].listed_microusd_hour


@lru_cache(maxsize=4096)
def _gpu(wire: str, memory_gib: float | None) -> tuple[str, str]:
    found = catalog().resolve(wire, memory_gib)
    return (found.name, found.family) if found.known else (clean_name(wire), clean_name(wire))


def _word(cells: Mapping[str, str | None], column: str, longest: int) -> str:
    text = clean(cells.get(column) or "")
    if not text or len(text) > longest:
        raise ValueError(f"{column}: expected text of 1 to {longest} characters")
    return text


def _moment(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or not 2000 <= found.year < 2100:
        raise ValueError("observed_at: expected a UTC time such as 2026-03-01T12:00:00Z")
    return int(found.astimezone(UTC).timestamp())


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_GPUS):
        raise ValueError(f"gpu_count: expected a whole number from 1 to {MOST_GPUS}")
    return int(text)


def _memory(text: str) -> float | None:
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < 10_000:
        raise ValueError("gpu_mem_gib: expected GiB of one GPU, or nothing")
    return found


def _spot(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError("spot: expected true or false")
    return _SWITCH[text.lower()]


def _price(text: str) -> int:
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or not 0 < found <= Decimal(MAX_USD_HOUR):
        raise ValueError(f"price_usd_hour: expected dollars an hour above 0, at most {MAX_USD_HOUR:.0f}")
    return max(1, microusd(found))
