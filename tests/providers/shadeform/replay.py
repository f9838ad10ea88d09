"""What the Shadeform adapter makes of every recorded answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.shadeform.launcher import create_error, parse_instances
from gpuwatch.providers.shadeform.offers import parse_types
from gpuwatch.providers.toolkit.error_mapping import read_error_body, reading_error

RECORDED = Path(__file__).parents[2] / "recorded" / "shadeform"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
NOT_ASKED_FOR = frozenset({"instances-create-request-guide.json"})  # what the adapter sends, not what it reads


def replay() -> dict[str, Any]:
    return {path.name: _read(path) for path in sorted(RECORDED.glob("*.json")) if path.name not in NOT_ASKED_FOR}


def _read(path: Path) -> Any:
    if path.name.startswith("instance-types-"):
        return _reported(lambda: parse_types(json.loads(path.read_bytes()), NOW))
    if path.name.startswith("instances-"):
        return _reported(lambda: parse_instances(json.loads(path.read_bytes())))
    status = int(path.name.split("-")[1])
    reply = HttpReply(status, {}, path.read_bytes())
    return {
        "asking": _shown(reading_error("shadeform", read_error_body(reply), reply, NOW)),
        "ordering": _shown(create_error("shadeform", read_error_body(reply), reply, NOW)),
    }


def _reported(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except GpuwatchError as error:
        return _shown(error)


def _shown(error: GpuwatchError) -> Any:
    details = {name: value for name, value in vars(error).items() if value is not None}
    return {"error": type(error).__name__, "text": str(error)} | msgspec.to_builtins(details)
