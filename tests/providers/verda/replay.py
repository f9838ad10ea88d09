"""The Verda adapter's results for every recorded answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.error_mapping import read_error_body
from tests.checkout import TESTS
from tests.golden import reported, shown
from tests.providers.clouds import cloud

RECORDED = TESTS / "recorded" / "verda"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
VERDA = cloud("verda")


def replay() -> dict[str, Any]:
    return {path.name: _read(path) for path in sorted(RECORDED.glob("*.json"))}


def _read(path: Path) -> Any:
    value = json.loads(path.read_bytes())
    if path.name.startswith("instance-types-"):
        everywhere = {spot: {"FIN-01": [one["instance_type"] for one in value]} for spot in (False, True)}
        return reported(lambda: VERDA.parse_offers(value, everywhere, 0.2, NOW))
    if path.name.startswith("instances-"):
        return reported(lambda: VERDA.parse_instances(VERDA.rows_of(value)))
    return {name: _refusals(case["http_status"], case["body"]) for name, case in value.items()}


def _refusals(status: int, body: Any) -> Any:
    reply = HttpReply(status, {}, json.dumps(body).encode())
    return {
        "asking": shown(VERDA.read_error("verda", read_error_body(reply), reply, NOW)),
        "ordering": shown(VERDA.order_error("verda", read_error_body(reply), reply, NOW)),
    }
