"""Recorded Google Cloud price lists, and the adapter's results for them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gpuwatch.providers.gcp.market import parse_weekly, read_weekly
from gpuwatch.providers.toolkit.post_processing import ParseResult
from tests.checkout import TESTS

_RECORDED = TESTS / "recorded" / "gcp"


def replay() -> Mapping[str, Any]:
    """Return golden file → offers and skips, as seen a day after the file was made."""
    weekly = read_weekly((_RECORDED / "pricing-2025-03-06-excerpt.yml").read_bytes())
    seen = ParseResult()
    offers = parse_weekly(weekly, seen, datetime(2025, 3, 7, tzinfo=UTC))
    return {"pricing-2025-03-06-excerpt.json": {"offers": offers, "skipped": seen.skipped}}
