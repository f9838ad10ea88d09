"""The Vultr adapter's results for every recorded answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.error_mapping import read_error_body
from gpuwatch.providers.vultr.plans import offers_of, parse_plans
from tests.checkout import TESTS
from tests.golden import reported, shown
from tests.providers.clouds import cloud

RECORDED = TESTS / "recorded" / "vultr"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
VULTR = cloud("vultr")


def replay() -> dict[str, Any]:
    return {path.name: _read(path) for path in sorted(RECORDED.glob("*.json"))}


def _read(path: Path) -> Any:
    value = json.loads(path.read_bytes())
    if path.name.startswith("plans-"):
        return reported(lambda: _offers(value))
    if path.name.startswith("instances-"):
        return reported(lambda: VULTR.parse_instances(value))
    return {name: _refusals(case["http_status"], case["body"]) for name, case in value.items()}


def _offers(rows: list[Any]) -> Any:
    seen, plans = parse_plans(rows)
    everywhere = frozenset(plan.name for plan in plans)
    for plan in plans:
        stock = dict.fromkeys([(plan.type, place) for place in plan.places], everywhere)
        seen.offers += offers_of(plan, stock, {"ewr": "US"}, NOW)
    return seen


def _refusals(status: int, body: Any) -> Any:
    reply = HttpReply(status, {}, json.dumps(body).encode())
    return {
        "asking": shown(VULTR.read_error("vultr", read_error_body(reply), reply, NOW)),
        "ordering": shown(VULTR.order_error("vultr", read_error_body(reply), reply, NOW)),
    }
