"""The Prime Intellect adapter's results for every recorded answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuwatch.providers.primeintellect import page_of, parse_rows
from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "primeintellect"
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def replay() -> dict[str, Any]:
    asked = [path for path in sorted(RECORDED.glob("*.json")) if not path.name.startswith("pods-")]
    return {path.name: _read(path) for path in asked}


def _read(path: Path) -> Any:
    value = json.loads(path.read_bytes())
    rows = [value] if path.name.startswith("offer-") else page_of(value)[0]
    return parse_rows(rows, _dollars, NOW)


def _dollars(currency: str) -> Any:
    from gpuwatch.providers.toolkit.currency import ExchangeRate

    return ExchangeRate("USD", 1.0) if currency == "USD" else None
