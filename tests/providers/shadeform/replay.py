"""The Shadeform adapter's results for every recorded answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.error_mapping import read_error_body, reading_error
from tests.checkout import TESTS
from tests.golden import reported, shown
from tests.providers.clouds import cloud

RECORDED = TESTS / "recorded" / "shadeform"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
SHADEFORM = cloud("shadeform")
NOT_ASKED_FOR = frozenset({"instances-create-request-guide.json"})  # sent by the adapter, not read by it


def replay() -> dict[str, Any]:
    return {path.name: _read(path) for path in sorted(RECORDED.glob("*.json")) if path.name not in NOT_ASKED_FOR}


def _read(path: Path) -> Any:
    if path.name.startswith("instance-types-"):
        return reported(lambda: SHADEFORM.parse_types(json.loads(path.read_bytes()), NOW))
    if path.name.startswith("instances-"):
        return reported(lambda: SHADEFORM.parse_instances(SHADEFORM.rows_of(json.loads(path.read_bytes()))))
    status = int(path.name.split("-")[1])
    reply = HttpReply(status, {}, path.read_bytes())
    return {
        "asking": shown(reading_error("shadeform", read_error_body(reply), reply, NOW)),
        "ordering": shown(SHADEFORM.order_error("shadeform", read_error_body(reply), reply, NOW)),
    }
