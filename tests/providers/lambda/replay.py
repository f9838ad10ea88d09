"""The Lambda adapter's results for every recorded answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.error_mapping import read_error_body, reading_error
from tests.checkout import TESTS
from tests.golden import reported, shown
from tests.providers.clouds import cloud

RECORDED = TESTS / "recorded" / "lambda"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
# Recorded for the emulator and for people; the adapter never requests it, or sends it itself.
NOT_ASKED_FOR = frozenset({"regions-reconstructed.json", "launch-request-reconstructed.json"})

LAMBDA = cloud("lambda")


def replay() -> dict[str, Any]:
    return {path.name: _read(path) for path in sorted(RECORDED.glob("*.json")) if path.name not in NOT_ASKED_FOR}


def _read(path: Path) -> Any:
    value = json.loads(path.read_bytes())
    if path.name.startswith("instance-types-"):
        types = {name: _kind(row["instance_type"]) for name, row in value["data"].items()}
        return {"types": types, "answer": reported(lambda: LAMBDA.parse_types(value, NOW))}
    if path.name.startswith(("instance-", "instances-")):
        one = isinstance(value["data"], dict)
        return reported(lambda: LAMBDA.parse_instances([value["data"]] if one else LAMBDA.rows_of(value)))
    if path.name.startswith("terminate-"):
        return reported(lambda: LAMBDA.parse_instances(value["data"]["terminated_instances"]))
    if path.name.startswith("launch-"):
        return reported(lambda: LAMBDA.parse_created(HttpReply(200, {}, path.read_bytes())))
    if path.name.startswith("errors-"):
        return {name: _refusals(case["http_status"], case["body"]) for name, case in value.items()}
    return _refusals(503, value)


def _kind(reported: Any) -> Any:
    kind = import_module("gpuwatch.providers.lambda").parse_type(reported)
    return f"{kind.gpu_count} x {kind.gpu.name}, {kind.gpu_memory_gib} GiB, {kind.usd_hour} $/h, {kind.cpu_arch}"


def _refusals(status: int, body: Any) -> Any:
    reply = HttpReply(status, {}, json.dumps(body).encode())
    return {
        "asking": shown(reading_error("lambda", read_error_body(reply), reply, NOW)),
        "ordering": shown(LAMBDA.order_error("lambda", read_error_body(reply), reply, NOW)),
    }
