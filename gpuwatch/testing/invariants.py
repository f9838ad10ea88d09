"""The invariants of offers, answers and instances, whatever a server sends. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Final

from gpuwatch.domain.market.money import MAX_USD_HOUR
from gpuwatch.domain.market.offer import NO_GPU, Offer, OfferTerms, clean
from gpuwatch.ports import Answer, Instance
from gpuwatch.ports.declarations import ProviderInfo

_ID_LENGTH: Final = 64  # as in the store's columns
_NON_NEGATIVE: Final = (
    "quoted_disk_gb", "disk_usd_gb_month", "min_bid_usd_hour", "fee_rate", "vcpu", "ram_gib", "disk_free_gb",
    "disk_mb_s", "download_mbps", "upload_mbps", "download_usd_gb", "upload_usd_gb", "cuda_max", "ports",
    "nvlink_gbps", "dlperf",
)  # fmt: skip
_TEXT_FIELDS: Final = (
    "gpu", "gpu_family", "gpu_wire", "offer_id", "machine_id", "host_id", "region", "cpu_arch", "driver",
)  # fmt: skip
_TERM_TEXT_FIELDS: Final = ("seller", "instance_type", "interconnect", "note")


def offer_problems(offer: Offer, info: ProviderInfo) -> list[str]:
    """Return the invariants that an offer breaks; empty: none."""
    return list(_offer_problems(offer, info)) + list(_terms_problems(offer.terms)) + _text_problems(offer, _TEXT_FIELDS)


def answer_problems(answer: Answer, info: ProviderInfo) -> list[str]:
    """Return the invariants that an answer breaks, with its first broken offers."""
    found = [f"{offer.offer_id!r}: {problem}" for offer in answer.offers for problem in offer_problems(offer, info)][:5]
    identities = [offer.identity for offer in answer.offers]
    prices = [offer.quoted_usd_hour for offer in answer.offers]
    checks = {
        f"its provider is {answer.provider!r}": answer.provider == info.name,
        "duplicate identity": len(set(identities)) == len(identities),
        "not sorted cheapest first": prices == sorted(prices),
        "observed_at is not aware UTC": _is_utc(answer.observed_at),
        "negative number of rows or searches": answer.rows >= 0 and answer.searches >= 0,
        "skipped has a count of 0": all(count > 0 for count in answer.skipped.values()),
        "a skip reason contains a value of the row": all(len(reason) <= 120 for reason in answer.skipped),
    }
    return found + [text for text, is_met in checks.items() if not is_met]


def instance_problems(instance: Instance) -> list[str]:
    """Return the invariants that an instance breaks."""
    numbers = ("listed_usd_hour", "stopped_usd_hour", "bid_usd_hour", "min_bid_usd_hour", "gpu_utilisation", "disk_gb")
    found = [
        f"{name} is {getattr(instance, name)!r}" for name in numbers if not _is_non_negative(getattr(instance, name))
    ]
    if not isinstance(instance.instance_id, str) or not 0 < len(instance.instance_id) <= _ID_LENGTH:
        found.append(f"instance_id is not a text of 1 to {_ID_LENGTH} characters: {instance.instance_id!r:.80}")
    for name in ("started_at", "ends_at", "maintenance_at"):
        timestamp = getattr(instance, name)
        if timestamp is not None and not _is_utc(timestamp):
            found.append(f"{name} is not aware UTC")
    return found + _text_problems(instance, ("status", "gpu", "gpu_wire", "ssh_host"))


def _offer_problems(offer: Offer, info: ProviderInfo) -> Iterator[str]:
    checks = {
        "provider": offer.provider == info.name,
        "offer_id": 0 < len(offer.offer_id) <= _ID_LENGTH,
        "machine_id": offer.machine_id is None or 0 < len(offer.machine_id) <= _ID_LENGTH,
        "quoted_usd_hour": math.isfinite(offer.quoted_usd_hour) and 0 < offer.quoted_usd_hour <= MAX_USD_HOUR,
        "gpu_count": isinstance(offer.gpu_count, int) and 0 <= offer.gpu_count <= 10_000,
        "gpu": (offer.gpu == NO_GPU) is (offer.gpu_count == 0),
        "gpu_memory_gib": offer.gpu_memory_gib is None or 0 < offer.gpu_memory_gib < 10_000,
        "spot": offer.spot in info.spots,
        "kind": offer.kind in info.kinds,
        "observed_at": _is_utc(offer.observed_at),
        "country": offer.country is None or (len(offer.country) == 2 and offer.country.isupper()),
        "reliability": offer.reliability is None or 0 <= offer.reliability <= 1,
    }
    for name in (*_NON_NEGATIVE, *checks):
        if not checks[name] if name in checks else not _is_non_negative(getattr(offer, name)):
            yield f"{name} is {getattr(offer, name)!r:.80}"


def _terms_problems(terms: OfferTerms) -> Iterator[str]:
    if not 0 < terms.gpu_fraction <= 1:
        yield f"terms.gpu_fraction is {terms.gpu_fraction!r}"
    if not _is_non_negative(terms.min_billing_s):
        yield f"terms.min_billing_s is {terms.min_billing_s!r}"
    if not (len(terms.currency) == 3 and terms.currency.isupper()):
        yield f"terms.currency is {terms.currency!r}"
    if terms.currency != "USD" and not (terms.usd_rate and math.isfinite(terms.usd_rate) and terms.usd_rate > 0):
        yield f"terms.usd_rate of {terms.currency} is {terms.usd_rate!r}"
    if terms.currency != "USD" and not isinstance(terms.usd_rate_on, date):
        yield f"terms.usd_rate_on of {terms.currency} is missing"
    yield from _text_problems(terms, _TERM_TEXT_FIELDS)


def _text_problems(struct: object, names: tuple[str, ...]) -> list[str]:
    """Return the names of texts that are not clean, or empty."""
    return [f"{name} is not clean: {value!r:.80}" for name in names if not _is_clean(value := getattr(struct, name))]


def _is_clean(value: object) -> bool:
    return value is None or (isinstance(value, str) and bool(value) and clean(value) == value)


def _is_non_negative(value: float | None) -> bool:
    return value is None or (math.isfinite(value) and value >= 0)


def _is_utc(timestamp: datetime) -> bool:
    return timestamp.utcoffset() == timedelta(0)
