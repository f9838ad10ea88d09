"""Parses instances from vast.ai's v1 list. Pure.

The rows also contain tokens, start scripts and environments: these are never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import MAX_USD_HOUR
from gpuwatch.domain.market.offer import NO_GPU, clean
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Instance, InstanceState
from gpuwatch.providers.toolkit.error_mapping import display_sentence
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.validation import UNREADABLE, time_from_unix, word

_MIB: Final = 1024.0
_MAX_SIZE: Final = 1e9  # MiB, GB: a larger size is in another unit
_LAST_PORT: Final = 65_535

# source: the vendor's documents of `show instance` and the table of its own client (vastai/SKILL.md), 2026-08;
# "destroyed" is in the tests of that client. null: provisioning
STATUS_WORDS: Final = StatusWords({
    **dict.fromkeys(("created", "loading", "scheduling", "rebooting"), InstanceState.STARTING),
    "running": InstanceState.RUNNING,
    "frozen": InstanceState.RUNNING,  # its GPU is billed
    "stopped": InstanceState.STOPPED,
    "exited": InstanceState.EXITED,
    "offline": InstanceState.OFFLINE,  # its GPU is not billed
    "unknown": InstanceState.UNKNOWN,  # no heartbeat lately
    "destroyed": InstanceState.ENDED,
})  # fmt: skip
# docker's last words, while the state stays "loading" for ever. source: public logs of 2026-08
_FAILURE_MESSAGES: Final = (
    "error pulling image",
    "oci runtime create failed",
    "failed to start containers",
    "error response from daemon",
    "manifest unknown",
    "pull access denied",
)
_PROGRESS_MESSAGES: Final = ("retrying", "downloading", "extracting")


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
    gpu_ram: float | None = None
    disk_space: float | None = None
    cuda_max_good: float | None = None
    is_bid: bool | None = None
    dph_total: float | None = None
    dph_base: float | None = None
    min_bid: float | None = None
    storage_total_cost: float | None = None
    instance: dict[str, Any] | None = None
    gpu_util: float | None = None
    ssh_host: str | None = None
    ssh_port: int | None = None
    ssh_user: str | None = None  # only in the emulator: containers of the market let in root
    public_ipaddr: str | None = None
    ports: dict[str, Any] | None = None
    start_date: float | None = None
    end_date: float | None = None


_REQUIRED_FIELDS: Final = frozenset(
    {"id", "label", "actual_status", "intended_status", "cur_state", "status_msg", "is_bid"}
)
_LENIENT_FIELDS: Final = {
    field.name: field.type for field in msgspec.structs.fields(_Row) if field.name not in _REQUIRED_FIELDS
}


class InstancePage(msgspec.Struct):
    """One page of the list: an answer without these keys is not a page, whatever its status."""

    success: bool
    instances: list[msgspec.Raw]
    total_instances: int
    next_token: str | None = None
    label_counts: dict[str, int] | None = None


def parse_page(body: bytes) -> tuple[InstancePage, list[Instance]]:
    """Parse one page. Raises PayloadChanged: it is not a page in which every instance is readable."""
    try:
        page = msgspec.json.decode(body, type=InstancePage)
        rows = [_row(raw) for raw in page.instances]
    except UNREADABLE as error:
        raise PayloadChanged(
            f"vastai: the instance list has an unexpected format: {display_sentence(str(error))}"
        ) from error
    if not page.success:
        raise PayloadChanged("vastai: the list of instances says success: false")
    return page, [_instance(row) for row in rows]


class _InstanceAnswer(msgspec.Struct):
    """The answer about one instance: an object under a plural name, null when it is gone."""

    instances: msgspec.Raw


def parse_instance(body: bytes) -> Instance | None:
    """Parse the answer about one instance; None: it is gone. Raises PayloadChanged."""
    try:
        answer = msgspec.json.decode(body, type=_InstanceAnswer)
        return None if bytes(answer.instances) == b"null" else _instance(_row(answer.instances))
    except UNREADABLE as error:
        raise PayloadChanged(
            f"vastai: the instance answer has an unexpected format: {display_sentence(str(error))}"
        ) from error


def instance_state(statuses: Mapping[str, str | None]) -> InstanceState:
    """Return the state that an instance's status fields mean.

    Args:
        statuses: `actual_status` (None: provisioning), `intended_status`, `cur_state`, `status_msg`.
    """
    actual = statuses.get("actual_status")
    state = InstanceState.STARTING if actual is None else STATUS_WORDS.read(actual).state
    is_stop_intended = statuses.get("intended_status") == "stopped"
    if state is InstanceState.EXITED and is_stop_intended:
        return InstanceState.STOPPED  # by the renter, or outbid, which look the same
    if state is not InstanceState.STARTING:
        return state
    message = (statuses.get("status_msg") or "").lower()
    if any(word in message for word in _FAILURE_MESSAGES) and not any(word in message for word in _PROGRESS_MESSAGES):
        return InstanceState.FAILED
    if is_stop_intended and statuses.get("cur_state") == "stopped":
        return InstanceState.STOPPED  # a bid that never won
    return state


def _row(raw: msgspec.Raw) -> _Row:
    """A row; lenient where no decision depends on a field: an odd port must not hide an instance that is billed."""
    try:
        return msgspec.json.decode(raw, type=_Row)
    except msgspec.ValidationError:
        value = msgspec.json.decode(raw, type=dict[str, object])
    for name, kind in _LENIENT_FIELDS.items():
        try:
            msgspec.convert(value.get(name), kind)
        except msgspec.ValidationError:
            value[name] = None
    return msgspec.convert(value, _Row)


def _instance(row: _Row) -> Instance:
    statuses = {
        "actual_status": row.actual_status,
        "intended_status": row.intended_status,
        "cur_state": row.cur_state,
        "status_msg": row.status_msg,
    }
    memory_gib = _positive_size(row.gpu_ram, _MIB)
    host, port = _ssh(row)
    return Instance(
        instance_id=clean(str(row.id)),
        label=None if row.label is None else clean(row.label),
        state=instance_state(statuses),
        status=_status(row),
        unknown_status=_unknown_status(row),
        machine_id=None if row.machine_id is None else clean(str(row.machine_id)),
        gpu=_gpu_of(row, memory_gib),
        gpu_wire=clean(row.gpu_name) or None if row.gpu_name else None,
        gpu_count=row.num_gpus,
        gpu_memory_gib=memory_gib,
        disk_gb=_positive_size(row.disk_space),
        cuda=_positive_size(row.cuda_max_good),
        spot=row.is_bid,
        listed_usd_hour=_price(row.dph_total),
        stopped_usd_hour=_disk_price(row),
        bid_usd_hour=_price(row.dph_base) if row.is_bid else None,
        min_bid_usd_hour=_price(row.min_bid) or None,
        gpu_utilisation=row.gpu_util if row.gpu_util is not None and 0 <= row.gpu_util <= 100 else None,
        ssh_host=host,
        ssh_port=port,
        ssh_user=None if row.ssh_user is None else clean(row.ssh_user),
        started_at=time_from_unix(row.start_date),
        ends_at=time_from_unix(row.end_date),
    )


def _gpu_of(row: _Row, memory_gib: float | None) -> str | None:
    if row.num_gpus == 0:
        return NO_GPU
    return None if row.gpu_name is None else catalog().resolve(clean(row.gpu_name), memory_gib).name


def _unknown_status(row: _Row) -> str | None:
    return None if row.actual_status is None else word(STATUS_WORDS.read(row.actual_status).unknown, 60)


def _ssh(row: _Row) -> tuple[str | None, int | None]:
    """Return the SSH address: the host itself if its port is mapped, because the proxy answers before sshd does."""
    mappings = (row.ports or {}).get("22/tcp")
    address = _address(row.public_ipaddr)
    for mapping in mappings if isinstance(mappings, list) and address is not None else []:
        port = _port(mapping.get("HostPort")) if isinstance(mapping, dict) else None
        if port is not None:
            return address, port
    return clean(row.ssh_host) if row.ssh_host else None, _port(row.ssh_port)


def _address(text: str | None) -> str | None:
    try:
        return str(ip_address(text.strip())) if text else None
    except ValueError:
        return None


def _port(value: object) -> int | None:
    """Return a port number; the wire format has text in `ports` and a number in `ssh_port`."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(_LAST_PORT)):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LAST_PORT else None


def _disk_price(row: _Row) -> float | None:
    """Return the price of the disk alone. `instance.totalHour` may be the running price, as one example shows."""
    if row.storage_total_cost is not None:
        return _price(row.storage_total_cost)
    disk_usd_hour = (row.instance or {}).get("diskHour")
    return (
        _price(float(disk_usd_hour))
        if isinstance(disk_usd_hour, int | float) and not isinstance(disk_usd_hour, bool)
        else None
    )


def _price(usd_hour: float | None) -> float | None:
    return usd_hour if usd_hour is not None and 0 <= usd_hour <= MAX_USD_HOUR else None


def _positive_size(value: float | None, unit: float = 1.0) -> float | None:
    """Return None for 0, which means "unknown" at vast.ai."""
    return value / unit if value is not None and 0 < value < _MAX_SIZE else None


def _status(row: _Row) -> str:
    """Return the marketplace's own words: the state, and its message."""
    return display_sentence(": ".join(filter(None, (row.actual_status or "new", (row.status_msg or "").strip()))))
