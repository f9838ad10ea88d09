"""Converts recorded prices to the offers that watches match, and finds the clauses that the history does not record.

The history records the seller, the place, the price and the reliability of the host. It does not record drivers and
networks: clauses on those are dropped and listed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from gpuwatch.domain.history.market_history import ListedOffer, OfferInterval
from gpuwatch.domain.market.money import HOURS_A_MONTH, MICRO
from gpuwatch.domain.market.offer import PLAIN_TERMS, Offer, OfferTerms
from gpuwatch.domain.watches.expression import FACTS, names_of, parse
from gpuwatch.domain.watches.watch import CpuArch, Watch

_NAMELESS = "offer:"  # prefix of a machine id made from the offer id, if the provider names no machines
_KEY_PART = "/"  # in keys of price rows, "29437217/ondemand": the whole key identifies the offer
_OF_A_STOCK = OfferTerms(fungible=True)
# Not recorded, or (`relocate`) about a running launch: clause → its value if a watch does not use it.
_UNRECORDED_CLAUSES: dict[str, Any] = {
    "datacenter": None,
    "min_reputation": None,
    "min_cuda": None,
    "min_driver": None,
    "min_download_mbps": None,
    "min_upload_mbps": None,
    "min_disk_gb": None,
    "min_vcpu": None,
    "min_ram_gib": None,
    "min_ports": None,
    "min_dlperf": None,
    "nvlink": None,
    "static_ip": None,
    "available_for_s": None,
    "new_low_s": None,
    "drop_by": None,
    "percentile": None,
    "restock": False,
    "relocate": None,
}
# Recorded if the source provided it: clause → its value if unused, and the fact of the listing.
_OPTIONAL_CLAUSES: dict[str, tuple[Any, Callable[[ListedOffer], object]]] = {
    "min_vram_gib": (None, lambda listing: listing.gpu_memory_gib),
    "min_reliability": (None, lambda listing: listing.reliability),
    "verified": (None, lambda listing: listing.verification),
    "regions": ((), lambda listing: listing.region or listing.country),
    "max_usd_gib_hour": (None, lambda listing: listing.gpu_memory_gib),
}
# The same for the names in conditions; the other recorded names are known for every listing.
_OPTIONAL_FACTS: dict[str, Callable[[ListedOffer], object]] = {
    "gpu_ram": lambda listing: listing.gpu_memory_gib,
    "reliability": lambda listing: listing.reliability,
    "verified": lambda listing: listing.verification,
    "region": lambda listing: listing.region,
    "country": lambda listing: listing.country,
}
_KEYS = {
    "available_for_s": "available_for",
    "new_low_s": "new_low",
    "any_of": "any",
    "max_usd_gib_hour": "usd_per_gib_hour",
}


def quoted_offer(listing: ListedOffer, interval: OfferInterval, reference_disk_gb: float) -> Offer:
    """The offer of an interval, quoted with the disk that the provider assumes by default."""
    who, disk = listing.identity, interval.disk_microusd_gb_month
    usd_gb_month = None if disk is None else disk / MICRO
    disk_gb = 0.0 if usd_gb_month is None else reference_disk_gb
    disk_usd_hour = (usd_gb_month or 0.0) * disk_gb / HOURS_A_MONTH
    is_nameless = who.machine_id.startswith(_NAMELESS)
    return Offer(
        provider=who.provider,
        offer_id=who.machine_id if _KEY_PART in who.machine_id else listing.offer_id,
        machine_id=None if is_nameless else who.machine_id,
        gpu=who.gpu,
        gpu_family=listing.gpu_family,
        gpu_wire=who.gpu,
        gpu_known=True,
        gpu_count=who.gpu_count,
        gpu_memory_gib=listing.gpu_memory_gib,
        spot=who.spot,
        quoted_usd_hour=interval.machine_microusd_hour / MICRO + disk_usd_hour,
        quoted_disk_gb=disk_gb,
        disk_usd_gb_month=usd_gb_month,
        observed_at=datetime.fromtimestamp(interval.from_s, UTC),
        region=listing.region,
        country=listing.country,
        reliability=listing.reliability,
        verification=listing.verification,
        kind=listing.kind,
        terms=_OF_A_STOCK if is_nameless else PLAIN_TERMS,
    )


def without_unrecorded_clauses(watch: Watch, listings: Iterable[ListedOffer]) -> tuple[Watch, tuple[str, ...]]:
    """The watch without the clauses that the history does not record, and the names of those clauses.

    A fact that is missing for every fitting GPU was not recorded. Otherwise clauses work as they do live: an unknown
    fact does not fit.
    """
    own_listings = [listing for listing in listings if listing.identity.gpu in watch.gpu_names]
    without = {
        clause: off for clause, off in _UNRECORDED_CLAUSES.items() if getattr(watch, clause) not in (None, False)
    }
    for clause, (off, fact_of) in _OPTIONAL_CLAUSES.items():
        if getattr(watch, clause) and not any(fact_of(listing) is not None for listing in own_listings):
            without[clause] = off
    if watch.when is not None and not _is_recorded(watch.when, own_listings):
        without["when"] = None
    if not all(_is_recorded(text, own_listings) for text in watch.any_of):
        without["any_of"] = ()
    if watch.cpu_arch not in (None, CpuArch.ANY):
        without["cpu_arch"] = CpuArch.ANY
    return msgspec.structs.replace(watch, **without), tuple(_KEYS.get(clause, clause) for clause in without)


def _is_recorded(condition: str, listings: Collection[ListedOffer]) -> bool:
    names = set(names_of(parse(condition)))
    optional = (_OPTIONAL_FACTS[name] for name in names & _OPTIONAL_FACTS.keys())
    return all(FACTS[name].is_recorded for name in names) and all(
        any(fact(listing) is not None for listing in listings) for fact in optional
    )
