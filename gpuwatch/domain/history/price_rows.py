"""Price rows: one listed price of one offer at one time, as in files with nine columns.

Columns: `observed_at` (UTC, RFC 3339 with Z), `provider` ("vastai"; after a colon a seller, or "listed": no proof of
stock), `offer_key`, `region`, `gpu_name_raw`, `gpu_count`, `gpu_mem_gib` (of one GPU; may be empty), `spot` (true or
false), `price_usd_hour` (listed, whole offer, no commission). A row states that this price was listed at that time.

A row without `offer_key` and `gpu_count` is a poll: it read every offer of this GPU (without a name: of every GPU) and
rental type; with a price, every offer at or under it. `row_conversion` defines what the rows imply. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import MAX_USD_HOUR, MICRO, microusd
from gpuwatch.domain.market.offer import Configuration, Identity, ListedOffer, OfferKind, clean

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
MAX_GPUS = 1024
SAW_NOTHING_MICROUSD = 1  # price of a row that marks the polls of a file as explicit when it has no polls to state
_SWITCH = {"true": True, "false": False}
_KINDS = {"live": OfferKind.LIVE, "listed": OfferKind.LISTED}
_LONGEST_PROVIDER = 17  # the store appends a suffix
_LONGEST_MACHINE = 64
_ENDINGS = {True: "/spot", False: "/ondemand"}
_PLAIN_PRICE = re.compile(r"[0-9]{1,5}(\.[0-9]{1,6})?")
_BEST = "/best"  # key of the cheapest offer of a seller or model, whichever it is; it has no rental type


class PriceRow(Configuration, frozen=True, kw_only=True, gc=False):
    """One parsed row; `provider` is without the seller.

    A poll has no key and no GPUs; its price, if any, is the highest price that it covers.
    """

    at_s: int
    seller: str | None = None
    offer_key: str = ""
    gpu_wire: str
    gpu_count: int = 0
    listed_microusd_hour: int
    kind: OfferKind | None = None  # None: not stated in the file

    @property
    def is_poll(self) -> bool:
        """Is it an explicit poll and not an offer?"""
        return not self.gpu_count


class InvalidCell(ValueError):
    """A cell of a file that cannot be used.

    Args:
        column: its name.
        expected: what it should hold.
    """

    def __init__(self, column: str, expected: str) -> None:
        super().__init__(f"{column}: {expected}")
        self.column = column


def missing_columns(names: Iterable[str]) -> list[str]:
    """The columns that are missing."""
    there = set(names)
    return [column for column in COLUMNS if column not in there]


def parse_price_row(cells: Mapping[str, str | None]) -> PriceRow:
    """Parse one row of a file.

    Args:
        cells: column → text.

    Raises:
        InvalidCell: the first invalid one.
    """
    provider, seller, kind = _provider(cells.get("provider") or "")
    is_poll = not cells.get("offer_key") and not cells.get("gpu_count")
    spot = _spot(cells.get("spot") or "")
    return PriceRow(
        at_s=read_moment(cells.get("observed_at") or ""),
        provider=provider,
        seller=seller,
        offer_key="" if is_poll else _key(cells.get("offer_key") or "", spot),
        region=clean(cells.get("region") or "", 200).strip() or None,
        gpu_wire="" if is_poll and not cells.get("gpu_name_raw") else _text_cell(cells, "gpu_name_raw", 200),
        gpu_count=0 if is_poll else _count(cells.get("gpu_count") or ""),
        gpu_memory_gib=_memory(cells.get("gpu_mem_gib") or ""),
        spot=spot,
        listed_microusd_hour=(
            0 if is_poll and not cells.get("price_usd_hour") else read_price(cells.get("price_usd_hour") or "")
        ),
        kind=kind,
    )


def csv_cells(row: PriceRow) -> tuple[str, ...]:
    """The nine cells of a row; `parse_price_row` is the inverse."""
    parts = [row.provider, row.seller or ("" if row.kind is None else row.kind.value)]
    return (
        _time_text(row.at_s),
        ":".join(part for part in parts if part),
        row.offer_key,
        row.region or "",
        row.gpu_wire,
        str(row.gpu_count or ""),
        "" if row.gpu_memory_gib is None else repr(row.gpu_memory_gib).removesuffix(".0"),
        "true" if row.spot else "false",
        "" if row.is_poll and not row.listed_microusd_hour else usd_text(row.listed_microusd_hour),
    )


def usd_text(microusd_hour: int) -> str:
    """Exact dollars: 3308444 → 3.308444, 1350000 → 1.35."""
    whole, part = divmod(microusd_hour, MICRO)
    return f"{whole}.{part:06}".rstrip("0") if part else str(whole)


def offer_kind_of(row: PriceRow, kinds: Mapping[str, OfferKind]) -> OfferKind:
    """The kind of a row's price: as stated in the file, else the usual one of its provider (`kinds`), else live."""
    return row.kind or kinds.get(row.provider, OfferKind.LIVE)


def machine_in_key(offer_key: str, spot: bool) -> str:
    """The part of a key that names the machine: "10952073/spot" and "10952073/ondemand" are the same machine."""
    return offer_key.removesuffix(_ENDINGS[spot]) or offer_key


def offer_key_of(identity: Identity) -> str:
    """The key from which `machine_in_key` returns this machine."""
    return identity.machine_id + ("" if identity.machine_id.endswith(_BEST) else _ENDINGS[identity.spot])


def listing_of(row: PriceRow, kinds: Mapping[str, OfferKind]) -> ListedOffer:
    """The facts in a row; the key without its rental type serves as the name of the machine."""
    country = _last_word(row.region)
    gpu, family = canonical_gpu(row.gpu_wire, row.gpu_memory_gib)
    return ListedOffer(
        **{name: getattr(row, name) for name in Configuration.__struct_fields__},
        machine_id=machine_in_key(row.offer_key, row.spot),
        gpu=gpu,
        gpu_family=family,
        offer_id=row.offer_key.partition("/")[0],
        kind=offer_kind_of(row, kinds),
        country=country if len(country) == 2 and country.isascii() and country.isupper() else None,
    )


def price_row_of(listing: ListedOffer, at_s: int, microusd_hour: int, kind: OfferKind | None) -> PriceRow:
    """Return the row of a listing at a price, from which `listing_of` returns its facts.

    Args:
        kind: as the row states it; None: it is the usual one of the provider.
    """
    memory = listing.gpu_memory_gib if canonical_gpu(listing.gpu, listing.gpu_memory_gib)[0] == listing.gpu else None
    return PriceRow(
        at_s=at_s,
        provider=listing.provider,
        offer_key=offer_key_of(listing.identity),
        region=_place_cell(listing.region, listing.country),
        gpu_wire=listing.gpu,
        gpu_count=listing.gpu_count,
        gpu_memory_gib=memory,
        spot=listing.spot,
        listed_microusd_hour=microusd_hour,
        kind=kind,
    )


def _place_cell(region: str | None, country: str | None) -> str | None:
    """Region and country as one text, from which `listing_of` returns the country: "Texas, US"."""
    if not region or not country or _last_word(region) == country:
        return region or country
    return f"{region}, {country}"


def _last_word(region: str | None) -> str:
    return (region or "").rpartition(",")[2].strip()


@lru_cache(maxsize=4096)
def canonical_gpu(wire: str, memory_gib: float | None) -> tuple[str, str]:
    """Canonical name and family of a spelling; of a card that the catalogue lacks, the same as in a live answer."""
    found = catalog().resolve(wire, memory_gib)
    return found.name, found.family


def _provider(text: str) -> tuple[str, str | None, OfferKind | None]:
    provider, _, word = clean(text).strip().partition(":")
    if not 1 <= len(provider) <= _LONGEST_PROVIDER or len(word) > _LONGEST_MACHINE:
        raise InvalidCell("provider", f"expected a name of 1 to {_LONGEST_PROVIDER} characters, perhaps with :seller")
    return provider, None if word in _KINDS else word or None, _KINDS.get(word)


def _key(text: str, spot: bool) -> str:
    text = clean(text)
    if not text or len(machine_in_key(text, spot)) > _LONGEST_MACHINE:
        raise InvalidCell("offer_key", f"expected text of 1 to {_LONGEST_MACHINE} characters")
    return text


def _text_cell(cells: Mapping[str, str | None], column: str, longest: int) -> str:
    text = clean(cells.get(column) or "")
    if not text or len(text) > longest:
        raise InvalidCell(column, f"expected text of 1 to {longest} characters")
    return text


@lru_cache(maxsize=4096)
def read_moment(text: str) -> int:
    """Parse a UTC time into seconds since 1970. Raises InvalidCell."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or not 2000 <= found.year < 2100:
        raise InvalidCell("observed_at", "expected a UTC time such as 2026-03-01T12:00:00Z")
    return int(found.astimezone(UTC).timestamp())


@lru_cache(maxsize=64)
def _time_text(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_GPUS):
        raise InvalidCell("gpu_count", f"expected a whole number from 1 to {MAX_GPUS}")
    return int(text)


def _memory(text: str) -> float | None:
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < 10_000:
        raise InvalidCell("gpu_mem_gib", "expected GiB per GPU, or nothing")
    return found


def _spot(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise InvalidCell("spot", "expected true or false")
    return _SWITCH[text.lower()]


def read_price(text: str) -> int:
    """Parse dollars into micro-dollars. Raises InvalidCell."""
    if _PLAIN_PRICE.fullmatch(text) and 0 < float(text) <= MAX_USD_HOUR:
        return round(float(text) * MICRO)  # exact: less than 2^53 micro-dollars, and no finer digits
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or not 0 < found <= Decimal(MAX_USD_HOUR):
        raise InvalidCell("price_usd_hour", f"expected dollars an hour above 0, at most {MAX_USD_HOUR:.0f}")
    return max(1, microusd(found))
