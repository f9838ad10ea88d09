"""Parses TensorDock's list of machines and each machine's own answer: both come in several shapes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.offer import clean
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Instance, InstanceState
from gpuwatch.providers.tensordock.error_mapping import NAME
from gpuwatch.providers.tensordock.names import PLACE, gpu_of
from gpuwatch.providers.toolkit.basic_launcher import instance_rows
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.validation import at, number, objects, require_complete_list, whole, word

_S: Final = InstanceState
# source: the vendor's documents, and what public clients handle (the Terraform provider's client.go); read 2026-11.
# Written in several forms: compared in lower case without blanks, hyphens and underscores.
STATUS_WORDS: Final = StatusWords({
    **dict.fromkeys(("queued", "creating", "deploying", "provisioning", "starting"), _S.STARTING),
    "running": _S.RUNNING,
    **dict.fromkeys(("stopping", "stopped", "stoppeddisassociated", "outbid"), _S.STOPPED),
    **dict.fromkeys(("error", "failed"), _S.FAILED),
    "deleting": _S.ENDING,
    **dict.fromkeys(("deleted", "terminated"), _S.ENDED),
    "unknown": _S.UNKNOWN,
})  # fmt: skip
_BLANKS: Final = re.compile(r"[_\s-]")
_ADDRESSES: Final = ("ipAddress", "ip_address")
_SSH: Final = 22
_USER: Final = "user"  # in every Linux image there, with sudo. source: public clients


class MachineRow(msgspec.Struct, frozen=True, kw_only=True):
    """One machine of the list: few fields."""

    machine_id: str
    name: str | None
    status: str | None

    @property
    def normalized_status(self) -> str:
        """The status in a comparable form."""
        return _normalize(self.status or "")


def rows_of(value: Any) -> list[MachineRow]:
    """Parse the machines of `GET /instances`, nested as documented or flat as seen live.

    Raises:
        PayloadChanged: it is not such a list, or a row names no machine: the list would be incomplete.
    """
    rows = at(value, "data", "instances") if isinstance(at(value, "data"), dict) else at(value, "data")
    found = instance_rows(value, rows, NAME)
    for container in (at(value, "data"), at(value, "meta"), at(value, "links")):
        require_complete_list(container, len(found), NAME)
    return [row_of(row) for row in found]


def machine_of(value: Any) -> Mapping[str, Any]:
    """Return the object of `GET /instances/{id}`: flat, in `data`, or in `attributes`. Raises PayloadChanged."""
    machine = at(value, "data") if isinstance(at(value, "data"), dict) else value
    if not isinstance(machine, dict) or not machine.get("id"):
        raise PayloadChanged(f"{NAME}: a machine cannot be parsed")
    return _flatten(machine)


def row_of(row: Mapping[str, Any]) -> MachineRow:
    """Return id, name and status of a machine, from the list or its own answer. Raises PayloadChanged: it has no id."""
    fields = _flatten(row)
    machine_id = fields.get("id")
    if not isinstance(machine_id, str) or not PLACE.fullmatch(machine_id):
        raise PayloadChanged(f"{NAME}: a machine has no id")
    return MachineRow(machine_id=machine_id, name=word(fields.get("name")), status=word(fields.get("status"), 40))


def is_complete(machine: Mapping[str, Any]) -> bool:
    """Whether address and price are known: little else can still appear."""
    return _address(machine) is not None and _rate(machine) is not None


def instance_of(row: MachineRow, machine: Mapping[str, Any], *, is_young: bool) -> Instance:
    """Build one instance; `machine` may be empty, then only the list's row is known.

    Args:
        is_young: "stopped" means that it never started.
    """
    wire, count = _gpus(at(machine, "resources", "gpus"))
    status = row.status or word(machine.get("status"), 40) or "unknown"
    name, memory_gb = gpu_of(wire, None) if wire else (None, None)
    state, unknown_status = STATUS_WORDS.read(_normalize(status))
    host = _address(machine)
    if state is InstanceState.RUNNING and host is None:
        state = InstanceState.STARTING  # "running" appears before its address does
    if state is InstanceState.STOPPED and is_young:
        state = InstanceState.FAILED
    label = row.name or word(machine.get("name"))
    if label is None:
        raise PayloadChanged(f"{NAME}: a machine has no name")
    return Instance(
        instance_id=row.machine_id,
        label=label,
        state=state,
        status=status,
        unknown_status=None if unknown_status is None else status,
        gpu=name.name if name else None,
        gpu_wire=wire,
        gpu_count=count,
        gpu_memory_gib=memory_gb,
        disk_gb=number(at(machine, "resources", "storage_gb"), 0),
        spot=False,
        listed_usd_hour=_rate(machine),
        ssh_host=host,
        ssh_port=_port(machine),
        ssh_user=_USER,
    )


def _normalize(status: str) -> str:
    return _BLANKS.sub("", status).lower()


def _flatten(machine: Mapping[str, Any]) -> Mapping[str, Any]:
    attributes = machine.get("attributes")
    return {**attributes, **machine} if isinstance(attributes, dict) else machine


def _rate(machine: Mapping[str, Any]) -> float | None:
    return number(machine.get("rateHourly"), 0.0, 100_000.0) or None


def _address(machine: Mapping[str, Any]) -> str | None:
    return next((found for key in _ADDRESSES if (found := word(machine.get(key), 100))), None)


def _port(machine: Mapping[str, Any]) -> int | None:
    """Return the external port of 22; the platform chooses it, whatever the order requested."""
    for one in objects(machine.get("portForwards")):
        if whole(one.get("internal_port")) == _SSH:
            return whole(one.get("external_port"), 1, 65_535)
    return None


def _gpus(value: Any) -> tuple[str | None, int | None]:
    """Return id and number of the GPUs, from a map by id or a list."""
    if isinstance(value, dict):
        value = [{"v0Name": key} | one for key, one in value.items() if isinstance(one, dict)]
    for one in objects(value):
        wire = one.get("v0Name")
        if isinstance(wire, str) and wire:
            return clean(wire, 80), whole(one.get("count"), 1, 64)
    return None, None
