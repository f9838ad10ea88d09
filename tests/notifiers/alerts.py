"""Alerts for the channels' tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gpuwatch.ports import Alert, AlertKind, OfferLine

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

LINE = OfferLine(
    gpu="H100 SXM",
    gpu_count=2,
    price_usd_gpu_hour="3.48",
    listed_usd_gpu_hour="2.90",
    price_usd_hour="6.96",
    place="Iceland, IS",
    reliability="99.2 %",
    provider="vastai",
    offer_id="28123456",
    machine_id="4711",
    verified=True,
    url="https://cloud.vast.ai/create/?id=28123456&x=1",
)


def a_line(**changes: Any) -> OfferLine:
    return msgspec.structs.replace(LINE, **changes)


def an_alert(**changes: Any) -> Alert:
    alert = Alert(
        alert_id="abcdefgh2345",
        kind=AlertKind.MATCH,
        created_at=NOON,
        headline="h100-night: H100 SXM × 2 at $3.48/GPU-h",
        watch="h100-night",
        facts=(
            ("GPU", "H100 SXM × 2"),
            ("Price", "$3.48/GPU-h"),
            ("Rank", "cheapest 4 % of 30 days (n = 702 hours of H100 SXM on demand at all providers)"),
            ("Listed", "$2.90/GPU-h, before 20 % commission"),
            ("Total", "$6.96/h for 2 GPUs"),
            ("Rental", "on demand"),
            ("Threshold", "$3.50/GPU-h"),
            ("Place", "Iceland, IS"),
            ("Machine", "80 GiB per GPU, 32 vCPU, 256 GiB RAM, 512 GB disk"),
            ("Reliability", "99.2 %, verified"),
        ),
        offers=(LINE, a_line(offer_id="2", price_usd_gpu_hour="3.49")),
        why="An offer is at or under the threshold (first_match).",
        did="Alerted only.",
        can_do=("Check again: gpuwatch check h100-night",),
    )
    return msgspec.structs.replace(alert, **changes)
