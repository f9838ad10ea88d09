"""Offers as a person and as a program see them: the columns of a table, the keys of the contract's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpuwatch.cli.output import rfc3339
from gpuwatch.cli.tables import Column, left, right, text
from gpuwatch.domain.market.marks import arch_of, marks
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.domain.market.pricing import MICRO, OfferPrice
from gpuwatch.domain.watches.decide import Match

_MINUTES_FROM_S = 1000  # an age is told in seconds up to here
COLUMNS = (
    left("GPU"),
    right("$/GPU-h"),
    right("listed", drop=2),
    right("$/h", drop=3),
    left("provider"),
    left("place", drop=4),
    right("reliab.", drop=6),
    left("verified", drop=7),
    right("age", drop=8),
    right("offer"),
)
_JOB_AT = 1  # behind the GPU: it is what the watch goes by


def offer_json(offer: Offer, price: OfferPrice) -> dict[str, Any]:
    """CONTRACT §3, JSON of one offer; more keys may follow, none is renamed."""
    price_usd_hour = price.price_microusd_hour / MICRO
    return {
        "provider": offer.provider,
        "offer_id": offer.offer_id,
        "machine_id": offer.machine_id,
        "gpu": offer.gpu,
        "gpu_family": offer.gpu_family,
        "gpu_count": offer.gpu_count,
        "gpu_memory_gib": None if offer.gpu_memory_gib is None else round(offer.gpu_memory_gib, 3),
        "spot": offer.spot,
        "region": offer.region,
        "country": offer.country,
        "listed_usd_hour": price.listed_microusd_hour / MICRO,
        "commission": price.commission_rate,
        "price_usd_hour": price_usd_hour,
        "price_usd_gpu_hour": price_usd_hour / offer.gpu_count,
        "reliability": offer.reliability,
        "verified": offer.verified,
        "observed_at": rfc3339(offer.observed_at),
        "disk_usd_gb_month": offer.disk_usd_gb_month,
        "datacenter": offer.datacenter,
        "vcpu": offer.vcpu,
        "ram_gib": None if offer.ram_gib is None else round(offer.ram_gib, 3),
        "disk_free_gb": offer.disk_free_gb,
        "download_mbps": offer.download_mbps,
        "upload_mbps": offer.upload_mbps,
        "download_usd_gb": offer.download_usd_gb,
        "upload_usd_gb": offer.upload_usd_gb,
        "cuda_max": offer.cuda_max,
        "driver": offer.driver,
        "ports": offer.ports,
        "nvlink_gbps": offer.nvlink_gbps,
        "dlperf": offer.dlperf,
        "available_until": rfc3339(offer.available_until),
        "kind": offer.kind.value,
        "cpu_arch": arch_of(offer),
        **_terms_json(offer.terms),
    }


def match_json(match: Match) -> dict[str, Any]:
    """The same of a watch's match; with what its job costs there, where the watch goes by that."""
    found = offer_json(match.offer, match.price)
    return found if match.job_microusd is None else found | {"job_cost_usd": match.job_microusd / MICRO}


def _terms_json(terms: OfferTerms) -> dict[str, Any]:
    return {
        "seller": terms.seller,
        "instance_type": terms.instance_type,
        "gpu_fraction": terms.gpu_fraction,
        "terms": {
            "interconnect": terms.interconnect,
            "multi_node": terms.multi_node,
            "prepaid": terms.prepaid,
            "tax_included": terms.tax_included,
            "min_billing_s": terms.min_billing_s,
            "currency": terms.currency,
            "usd_rate": terms.usd_rate,
            "usd_rate_on": None if terms.usd_rate_on is None else terms.usd_rate_on.isoformat(),
            "note": terms.note,
        },
    }


def offer_cells(match: Match, now: datetime) -> Sequence[str]:
    """One row of the table, in the order of COLUMNS."""
    offer, price = match.offer, match.price
    each = offer.gpu_count * MICRO
    age_s = max(0, int((now - offer.observed_at).total_seconds()))
    return (
        f"{offer.gpu_count}× {offer.gpu}{' spot' if offer.spot else ''}",
        f"{price.price_microusd_hour / each:.3f}",
        f"{price.listed_microusd_hour / each:.3f}",
        f"{price.price_microusd_hour / MICRO:.3f}",
        offer.provider,
        offer.place or "–",
        "–" if offer.reliability is None else f"{offer.reliability * 100:.1f}%",
        "–" if offer.verification is None else offer.verification.value,
        f"{age_s}s" if age_s < _MINUTES_FROM_S else f"{age_s // 60}m",
        offer.offer_id,
    )


def offers_table(
    found: Sequence[Match], now: datetime, also: Sequence[str] = ()
) -> tuple[Sequence[Column], list[Sequence[str]]]:
    """Columns and rows; what sets offers apart ("listed", "via lambda") has a column if there is any such offer.

    Args:
        also: for each offer, where else it is; empty: nothing is known of that.
    """
    rows = [offer_cells(match, now) for match in found]
    columns: Sequence[Column] = COLUMNS
    if any(match.job_microusd is not None for match in found):
        rows = [(*row[:_JOB_AT], _job_cell(match), *row[_JOB_AT:]) for row, match in zip(rows, found, strict=True)]
        columns = (*COLUMNS[:_JOB_AT], right("$ job"), *COLUMNS[_JOB_AT:])
    notes_at = columns.index(left("provider")) + 1  # what is not plain must be seen on a narrow terminal, too
    elsewhere = also or [""] * len(found)
    notes = [", ".join(filter(None, (*marks(m.offer), text))) for m, text in zip(found, elsewhere, strict=True)]
    if not any(notes):
        return columns, rows
    marked: list[Sequence[str]] = [
        (*row[:notes_at], note, *row[notes_at:]) for row, note in zip(rows, notes, strict=True)
    ]
    return (*columns[:notes_at], text("notes", drop=1), *columns[notes_at:]), marked


def _job_cell(match: Match) -> str:
    return "–" if match.job_microusd is None else f"{match.job_microusd / MICRO:,.2f}"
