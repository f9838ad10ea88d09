"""What the Lambda adapter makes of every recorded answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.error_mapping import read_error_body, reading_error

RECORDED = Path(__file__).parents[2] / "recorded" / "lambda"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
# Recorded for the emulator and for people; the adapter never asks for it, or sends it itself.
NOT_ASKED_FOR = frozenset({"regions-reconstructed.json", "launch-request-reconstructed.json"})

offers = import_module("gpuwatch.providers.lambda.offers")
renting = import_module("gpuwatch.providers.lambda.launcher")


def replay() -> dict[str, Any]:
    return {path.name: _read(path) for path in sorted(RECORDED.glob("*.json")) if path.name not in NOT_ASKED_FOR}


def _read(path: Path) -> Any:
    value = json.loads(path.read_bytes())
    if path.name.startswith("instance-types-"):
        types = {name: _kind(row["instance_type"]) for name, row in value["data"].items()}
        return {"types": types, "answer": _reported(lambda: offers.parse_types(value, NOW))}
    if path.name.startswith(("instance-", "instances-")):
        one = isinstance(value["data"], dict)
        return _reported(lambda: renting.parse_instances({"data": [value["data"]]} if one else value))
    if path.name.startswith("terminate-"):
        return _reported(lambda: renting.parse_instances({"data": value["data"]["terminated_instances"]}))
    if path.name.startswith("launch-"):
        return _reported(lambda: renting.created(HttpReply(200, {}, path.read_bytes())))
    if path.name.startswith("errors-"):
        return {name: _refusals(case["http_status"], case["body"]) for name, case in value.items()}
    return _refusals(503, value)


def _kind(reported: Any) -> Any:
    kind = offers.parse_type(reported)
    return f"{kind.gpu_count} x {kind.gpu.name}, {kind.gpu_memory_gib} GiB, {kind.usd_hour} $/h, {kind.cpu_arch}"


def _refusals(status: int, body: Any) -> Any:
    reply = HttpReply(status, {}, json.dumps(body).encode())
    return {
        "asking": _shown(reading_error("lambda", read_error_body(reply), reply, NOW)),
        "ordering": _shown(renting.launch_error("lambda", read_error_body(reply), reply, NOW)),
    }


def _reported(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except GpuwatchError as error:
        return _shown(error)


def _shown(error: GpuwatchError) -> Any:
    details = {name: value for name, value in vars(error).items() if value is not None}
    public = next(kind for kind in type(error).__mro__ if not kind.__name__.startswith("_"))
    return {"error": public.__name__, "text": str(error)} | msgspec.to_builtins(details)
