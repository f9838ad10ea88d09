"""The TensorDock adapter's results for every recorded answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.tensordock.create import check_destroyed, parse_created
from gpuwatch.providers.tensordock.error_mapping import NAME, accepted_value, ordering, reading, status_of
from gpuwatch.providers.tensordock.launcher import MachineRow, instance_of, machine_of, rows_of
from gpuwatch.providers.tensordock.offers import ResourcesPerGpu, parse_hostnodes, parse_locations
from gpuwatch.providers.toolkit.error_mapping import read_error_body
from tests.checkout import TESTS
from tests.golden import shown

RECORDED = TESTS / "recorded" / "tensordock"
NOW = datetime(2026, 11, 21, tzinfo=UTC)

# Requests, and answers that the adapter never requests.
NOT_ASKED_FOR = re.compile(r"v2-instance-(create-request|start|stop)-")


def replay() -> dict[str, Any]:
    return {path.name: _read(path) for path in sorted(RECORDED.glob("*.json")) if not NOT_ASKED_FOR.match(path.name)}


def _read(path: Path) -> Any:
    status = re.search(r"http(\d+)", path.name)
    reply = HttpReply(int(status[1]) if status else 200, {}, path.read_bytes())
    readers: Mapping[str, Callable[[HttpReply], Any]] = {
        "v2-error-": _error,
        "v2-locations-": lambda reply: parse_locations(accepted_value(reply, NOW), ResourcesPerGpu(), NOW),
        "v2-hostnodes-": lambda reply: parse_hostnodes(accepted_value(reply, NOW), ResourcesPerGpu(), NOW),
        "v2-instance-create-response-": lambda reply: parse_created(reply, NOW),
        "v2-instance-delete-": lambda reply: check_destroyed(reply, NOW),
        "v2-instance-get-": _machine,
        "v2-instances-list-": lambda reply: rows_of(accepted_value(reply, NOW)),
    }
    return next(reader for prefix, reader in readers.items() if path.name.startswith(prefix))(reply)


def _machine(reply: HttpReply) -> Any:
    machine = machine_of(accepted_value(reply, NOW))
    row = MachineRow(machine_id=machine["id"], name=machine["name"], status=machine["status"])
    return instance_of(row, machine, is_young=False)


def _error(reply: HttpReply) -> Any:
    reported = read_error_body(reply)
    return {
        "means": status_of(reply, reported.value),
        "asking": shown(reading(NAME, reported, reply, NOW)),
        "ordering": shown(ordering(NAME, reported, reply, NOW)),
    }
