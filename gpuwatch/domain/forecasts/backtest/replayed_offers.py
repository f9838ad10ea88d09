"""Converts recorded prices to the offers that watches match, and finds the clauses that the history does not record.

The history records the seller, the place, the price and the reliability of the host. It does not record drivers and
networks: clauses on those are dropped and listed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from gpuwatch.domain.history.market_history import OfferInterval, quoted_offer
from gpuwatch.domain.market.offer import ListedOffer, Offer, OfferTerms
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
    "min_vcpu": (None, lambda listing: listing.vcpu),
    "min_ram_gib": (None, lambda listing: listing.ram_gib),
}
# The same for the traffic in the price; its value if unused is 0.
_TRAFFIC: dict[str, Callable[[ListedOffer], object]] = {
    "download_gb": lambda listing: listing.download_usd_gb,
    "upload_gb": lambda listing: listing.upload_usd_gb,
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


def replayed_offer(listing: ListedOffer, interval: OfferInterval, reference_disk_gb: float) -> Offer:
    """The offer of an interval, quoted with the disk that the provider assumes by default."""
    machine = listing.machine_id or _NAMELESS
    offer = quoted_offer(listing, interval, datetime.fromtimestamp(interval.from_s, UTC), reference_disk_gb)
    if _KEY_PART in machine:
        offer = replace(offer, offer_id=machine)
    return replace(offer, machine_id=None, terms=_OF_A_STOCK) if machine.startswith(_NAMELESS) else offer


def without_unrecorded_clauses(watch: Watch, listings: Iterable[ListedOffer]) -> tuple[Watch, tuple[str, ...]]:
    """The watch without the clauses that the history does not record, and the names of those clauses.

    A fact that is missing for every fitting GPU was not recorded. Otherwise clauses work as they do live: an unknown
    fact does not fit.
    """
    own_listings = [listing for listing in listings if listing.gpu in watch.gpu_names]
    without = {
        clause: off for clause, off in _UNRECORDED_CLAUSES.items() if getattr(watch, clause) not in (None, False)
    }
    for clause, (off, fact_of) in _OPTIONAL_CLAUSES.items():
        if getattr(watch, clause) and not any(fact_of(listing) is not None for listing in own_listings):
            without[clause] = off
    for name, rate_of in _TRAFFIC.items() if watch.traffic is not None else ():
        if getattr(watch, name) and not any(rate_of(listing) is not None for listing in own_listings):
            without[name] = 0.0
    if watch.when is not None and not _is_recorded(watch.when, own_listings):
        without["when"] = None
    if not all(_is_recorded(text, own_listings) for text in watch.any_of):
        without["any_of"] = ()
    if watch.cpu_arch not in (None, CpuArch.ANY):
        without["cpu_arch"] = CpuArch.ANY
    return replace(watch, **without), tuple(_KEYS.get(clause, clause) for clause in without)


def _is_recorded(condition: str, listings: Collection[ListedOffer]) -> bool:
    names = set(names_of(parse(condition)))
    optional = (_OPTIONAL_FACTS[name] for name in names & _OPTIONAL_FACTS.keys())
    return all(FACTS[name].is_recorded for name in names) and all(
        any(fact(listing) is not None for listing in listings) for fact in optional
    )
