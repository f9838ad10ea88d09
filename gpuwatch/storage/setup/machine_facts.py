"""Facts about a machine in the history besides its prices: nullable columns of `series`, each declared once, here.

The schema, the recorder, the import and the readers of the history take them from `MACHINE_FACTS`. A new fact also
needs a migration and a field in `domain.market.offer.ListedOffer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Integer, SmallInteger
from sqlalchemy.types import TypeEngine

from gpuwatch.domain.market.offer import ListedOffer, Offer, Verification
from gpuwatch.domain.market.traffic import microusd_gb

Cell = int | str | None
Size = tuple[int | None, int | None]
NO_SIZE: Size = (None, None)

_VERIFICATIONS = {1: Verification.VERIFIED, 0: Verification.UNVERIFIED, 2: Verification.DEVERIFIED}  # stored values
_MOST_RATE = 2**53  # micro-dollars: nothing costs that much, and every such number is exact as a float
_MOST_SIZE = 2**31
_STORED_VERIFICATIONS = {word: number for number, word in _VERIFICATIONS.items()}


class MachineFact(NamedTuple):
    """One fact as last seen; it may change while the machine stays the same."""

    column: str
    sql_type: type[TypeEngine[Any]]
    of: Callable[[ListedOffer], Cell]  # the stored value; text passes through `storable_text`
    field: str  # of ListedOffer
    read: Callable[[Any], object]  # the stored value → the field
    in_lake: bool = True  # a column of the lake's files, whose format is fixed


def verification_of(offer: ListedOffer) -> int | None:
    """Return the verification as stored."""
    return None if offer.verification is None else stored_verification(offer.verification)


def stored_verification(verification: Verification) -> int:
    """Return a verification as stored."""
    return _STORED_VERIFICATIONS[verification]


def verification_from(code: int | None) -> Verification | None:
    """Return the verification as the provider stated it."""
    return None if code is None else _VERIFICATIONS.get(code)


def _ppm(offer: ListedOffer) -> int | None:
    return None if offer.reliability is None else round(offer.reliability * 1e6)


def _fraction(ppm: int | None) -> float | None:
    return None if ppm is None else ppm / 1e6


def _stored_rate(usd_gb: float | None) -> int | None:
    stored = microusd_gb(usd_gb)
    return stored if stored is None or 0 <= stored < _MOST_RATE else None


def traffic_rate(microusd: int | None) -> float | None:
    """Return the price of one GB of traffic in dollars, from the stored value."""
    return None if microusd is None else microusd / 1e6


def size_of(offer: ListedOffer) -> Size:
    """Return vCPUs in thousandths and MiB of memory, as stored; none with GPUs, whose past nobody asks for them."""
    if offer.gpu_count:
        return NO_SIZE
    return _stored_size(offer.vcpu, 1000), _stored_size(offer.ram_gib, 1024)


def _stored_size(amount: float | None, units: int) -> int | None:
    stored = 0 if amount is None else round(amount * units)
    return stored if 0 < stored < _MOST_SIZE else None


def _of_thousandths(stored: int | None) -> float | None:
    return None if stored is None else stored / 1000


def _of_mib(stored: int | None) -> float | None:
    return None if stored is None else stored / 1024


MACHINE_FACTS = (
    MachineFact("reliability_ppm", Integer, _ppm, "reliability", _fraction),
    MachineFact("verification", SmallInteger, verification_of, "verification", verification_from),
    MachineFact(
        "download_microusd_gb",
        BigInteger,
        lambda offer: _stored_rate(offer.download_usd_gb),
        "download_usd_gb",
        traffic_rate,
        in_lake=False,
    ),
    MachineFact(
        "upload_microusd_gb",
        BigInteger,
        lambda offer: _stored_rate(offer.upload_usd_gb),
        "upload_usd_gb",
        traffic_rate,
        in_lake=False,
    ),
    MachineFact("vcpu_milli", Integer, lambda offer: size_of(offer)[0], "vcpu", _of_thousandths, in_lake=False),
    MachineFact("ram_mib", Integer, lambda offer: size_of(offer)[1], "ram_gib", _of_mib, in_lake=False),
)
LAKE_FACTS = tuple(fact for fact in MACHINE_FACTS if fact.in_lake)


def fact_cells(offer: Offer) -> dict[str, Cell]:
    """Return the value of each fact, by column."""
    return {fact.column: fact.of(offer) for fact in MACHINE_FACTS}


def fact_fields(cells: Sequence[Any]) -> dict[str, Any]:
    """Convert stored values to the fields of a ListedOffer."""
    return {fact.field: fact.read(cell) for fact, cell in zip(MACHINE_FACTS, cells, strict=True)}


def facts_hash(offer: Offer) -> int:
    """Return a hash of the facts that justify a write at an unchanged price; small reliability changes do not."""
    rounded_reliability = None if offer.reliability is None else round(offer.reliability, 2)
    traffic = offer.download_usd_gb, offer.upload_usd_gb
    size = size_of(offer)
    return hash((offer.offer_id, offer.region, offer.country, rounded_reliability, offer.verification, traffic, size))
