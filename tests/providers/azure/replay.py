"""The Azure adapter's results for every recorded page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from gpuwatch.providers.azure.market import parse_prices
from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "azure"
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def replay() -> dict[str, Any]:
    return {path.name: parse_prices(json.loads(path.read_bytes())["Items"], NOW) for path in RECORDED.glob("*.json")}
