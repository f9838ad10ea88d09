"""Instances, as vast.ai's v1 list shows them. Pure.

Tokens, start scripts and environments are in these rows too: they are never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpuwatch.errors import PayloadChanged
from gpuwatch.market.pricing import MAX_USD_HOUR
from gpuwatch.market.text import clean
from gpuwatch.net import redact
from gpuwatch.ports import Instance, InstanceState
from gpuwatch.providers._untrusted import UNREADABLE

_STATUS_LENGTH: Final = 160
_LAST_SECOND: Final = 32_503_680_000.0  # the year 3000

# source: the vendor's documents of `show instance`, 2026-08
_STATES: Final = {
    "created": InstanceState.STARTING,
    "loading": InstanceState.STARTING,
    "scheduling": InstanceState.STARTING,
    "rebooting": InstanceState.STARTING,
    "running": InstanceState.RUNNING,
    "frozen": InstanceState.RUNNING,  # its GPU is billed
    "stopped": InstanceState.STOPPED,
    "exited": InstanceState.FAILED,
    "offline": InstanceState.FAILED,
}
# docker's last words, seen while the state says "loading" for ever. source: public logs of 2026-08
_DEAD: Final = (
    "error pulling image",
    "oci runtime create failed",
    "failed to start containers",
    "error response from daemon",
    "manifest unknown",
    "pull access denied",
)
_ALIVE: Final = ("retrying", "downloading", "extracting")


class _Row(msgspec.Struct):
    id: int | str
    actual_status: str | None
    label: str | None = None
    intended_status: str | None = None
    cur_state: str | None = None
    status_msg: str | None = None
    machine_id: int | str | None = None
    gpu_name: str | None = None
    num_gpus: int | None = None
    is_bid: bool | None = None
    dph_total: float | None = None
    gpu_util: float | None = None
    ssh_host: str | None = None
    ssh_port: int | None = None
    start_date: float | None = None


_DECIDING: Final = frozenset({"id", "label", "actual_status", "intended_status", "cur_state", "status_msg", "is_bid"})
_LESSER: Final = {field.name: field.type for field in msgspec.structs.fields(_Row) if field.name not in _DECIDING}


class Page(msgspec.Struct):
    """One page of the list: without these keys it is none, whatever its status."""

    success: bool
    instances: list[msgspec.Raw]
    total_instances: int
    instances_found: int | None = None
    next_token: str | None = None
    label_counts: dict[str, int] | None = None


def parse_page(body: bytes) -> tuple[Page, list[Instance]]:
    """Understand one page.

    Raises:
        PayloadChanged: it is anything but a page with every instance readable.
    """
    try:
        page = msgspec.json.decode(body, type=Page)
        rows = [_row(raw) for raw in page.instances]
    except UNREADABLE as error:
        raise PayloadChanged(f"vastai: the list of instances is not understood: {_told(error)}") from error
    if not page.success:
        raise PayloadChanged("vastai: the list of instances says success: false")
    return page, [_instance(row) for row in rows]


def state_of(words: Mapping[str, str | None]) -> InstanceState:
    """What an instance's own words mean for us.

    Args:
        words: `actual_status` (None: provisioning), `intended_status`, `cur_state`, `status_msg`.
    """
    actual = words.get("actual_status")
    state = InstanceState.STARTING if actual is None else _STATES.get(actual, InstanceState.UNKNOWN)
    stays_stopped = words.get("intended_status") == "stopped"
    if state is InstanceState.FAILED and stays_stopped and actual == "exited":
        return InstanceState.STOPPED  # by the renter, or outbid, which looks the same
    if state is not InstanceState.STARTING:
        return state
    message = (words.get("status_msg") or "").lower()
    if any(word in message for word in _DEAD) and not any(word in message for word in _ALIVE):
        return InstanceState.FAILED
    if stays_stopped and words.get("cur_state") == "stopped":
        return InstanceState.STOPPED  # a bid that never won
    return state


def _row(raw: msgspec.Raw) -> _Row:
    """A row, forgiving only where no decision hangs on it: an odd port must not hide an instance that is billed."""
    try:
        return msgspec.json.decode(raw, type=_Row)
    except msgspec.ValidationError:
        value = msgspec.json.decode(raw, type=dict[str, object])
    for name, kind in _LESSER.items():
        try:
            msgspec.convert(value.get(name), kind)
        except msgspec.ValidationError:
            value[name] = None
    return msgspec.convert(value, _Row)


def _instance(row: _Row) -> Instance:
    words = {
        "actual_status": row.actual_status,
        "intended_status": row.intended_status,
        "cur_state": row.cur_state,
        "status_msg": row.status_msg,
    }
    started = row.start_date
    return Instance(
        instance_id=clean(str(row.id)),
        label=None if row.label is None else clean(row.label),
        state=state_of(words),
        status=_status(row),
        machine_id=None if row.machine_id is None else clean(str(row.machine_id)),
        gpu_wire=None if row.gpu_name is None else clean(row.gpu_name),
        gpu_count=row.num_gpus,
        spot=row.is_bid,
        listed_usd_hour=row.dph_total if row.dph_total is not None and 0 <= row.dph_total <= MAX_USD_HOUR else None,
        gpu_utilisation=row.gpu_util if row.gpu_util is not None and 0 <= row.gpu_util <= 100 else None,
        ssh_host=None if row.ssh_host is None else clean(row.ssh_host),
        ssh_port=row.ssh_port,
        started_at=datetime.fromtimestamp(started, UTC) if started and 0 < started < _LAST_SECOND else None,
    )


def _status(row: _Row) -> str:
    """The marketplace's own words: the state, and what it says about it."""
    message = " ".join((row.status_msg or "").split())
    return redact(clean(": ".join(part for part in (row.actual_status or "new", message) if part), _STATUS_LENGTH))


def _told(error: Exception) -> str:
    return redact(clean(str(error), _STATUS_LENGTH))
