"""The launcher of TensorDock: its list of machines and each machine's own answer come in several shapes.

Requests that change something are sent once, whatever happens.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.offer import clean
from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderError
from gpuwatch.ports import Created, Instance, InstanceState, Order
from gpuwatch.ports.prerequisites import Prerequisite
from gpuwatch.ports.settings import Option
from gpuwatch.providers.tensordock.create import PLACE, PUBLIC_KEY, check_destroyed, create_body, gpu_of, parse_created
from gpuwatch.providers.tensordock.error_mapping import NAME, UnprovenNotFound, accepted_value
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.basic_launcher import BasicLauncher, instance_rows, not_sent, public_key_prerequisite
from gpuwatch.providers.toolkit.error_mapping import InstanceNotFound, NoSuchObject
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


_PATH: Final = "/api/v2/instances"
_CREATE_DEADLINE_S: Final = 120.0  # a minute is usual, and giving up early costs more than waiting
_YOUNG_S: Final = 600.0  # a machine that stops at this age never started properly
_INCOMPLETE_TTL_S: Final = 12.0  # how long an answer is reused while the address or the price is missing
_COMPLETE_TTL_S: Final = 60.0


class _CachedMachine(msgspec.Struct, frozen=True):
    """The answer about one machine, and its time (monotonic seconds)."""

    at_s: float
    normalized_status: str
    machine: Mapping[str, Any]


class TensorDockLauncher(BasicLauncher):
    """Rents virtual machines: runs `onstart`, not the order's image."""

    name = NAME

    def __init__(self, client: ApiClient, options: Mapping[str, Option]) -> None:
        self._client = client
        self._options = options
        self._lock = threading.Lock()
        self._created_at_s: dict[str, float] = {}  # of machines that this process created
        self._answers: dict[str, _CachedMachine] = {}

    def create(self, order: Order) -> Created:
        """Rent once. After a lost answer, the label finds the machine: it is its name. Raises OrderError."""
        body = create_body(order, self._options, self._client.tools.now())
        self._client.require_key_to_order()
        reply = self._client.order("POST", _PATH, body, deadline_s=_CREATE_DEADLINE_S)
        created = parse_created(reply, self._client.tools.now())
        now_s = self._client.tools.monotonic()
        with self._lock:
            recent = {
                key: created_at_s for key, created_at_s in self._created_at_s.items() if now_s - created_at_s < _YOUNG_S
            }
            self._created_at_s = recent | {created.instance_id: now_s}
        return created

    def check_order(self, order: Order) -> None:
        """Build the request. Raises OrderRefused."""
        create_body(order, self._options, self._client.tools.now())

    def list_instances(self) -> Sequence[Instance]:
        """Return every machine of the organisation, each read separately: the list has little more than names.

        Raises:
            ProviderError: the list is incomplete.
        """
        self._client.require_key()
        reply = self._client.request("GET", _PATH, kind="list")
        rows = {row.machine_id: row for row in rows_of(accepted_value(reply, self._client.tools.now()))}
        found = [self._instance(row) for row in rows.values() if not STATUS_WORDS.is_ended(row.normalized_status)]
        with self._lock:
            self._answers = {key: answer for key, answer in self._answers.items() if key in rows}
        return found

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Check that the settings contain a public key. Sends nothing."""
        mend = f'add ssh_key = "ssh-ed25519 …", your public key, to [providers.{NAME}.options]'
        return [public_key_prerequisite(self._options.get("ssh_key"), PUBLIC_KEY, mend)]

    def get(self, instance_id: str) -> Instance | None:
        """Return one machine, ended or not; None: TensorDock itself states that there is none. Raises ProviderError."""
        if not PLACE.fullmatch(instance_id):
            raise PayloadChanged(f"{NAME}: invalid machine id")
        self._client.require_key()
        try:
            machine = self._machine(instance_id)
        except InstanceNotFound:
            return None
        row = row_of(machine)
        if row.machine_id != instance_id or row.status is None:
            raise PayloadChanged(
                f"{NAME}: asked for machine {instance_id}, but got another one, or one without a status"
            )
        return self._instance_of(row, machine)

    def destroy(self, instance_id: str) -> None:
        """End a machine and delete its disk, unless it is gone. Raises OrderError: not done, or outcome unknown."""
        if not PLACE.fullmatch(instance_id):
            raise not_sent(NAME, "invalid machine id")
        self._client.require_key_to_order()
        try:
            check_destroyed(self._client.order("DELETE", f"{_PATH}/{instance_id}"), self._client.tools.now())
        except NoSuchObject:
            return

    def _instance(self, row: MachineRow) -> Instance:
        return self._instance_of(row, self._newest_answer(row).machine)

    def _instance_of(self, row: MachineRow, machine: Mapping[str, Any]) -> Instance:
        created_at_s = self._created_at_s.get(row.machine_id)
        is_young = created_at_s is not None and self._client.tools.monotonic() - created_at_s < _YOUNG_S
        return instance_of(row, machine, is_young=is_young)

    def _machine(self, machine_id: str) -> Mapping[str, Any]:
        reply = self._client.request("GET", f"{_PATH}/{machine_id}", kind="detail")
        return machine_of(accepted_value(reply, self._client.tools.now()))

    def _newest_answer(self, row: MachineRow) -> _CachedMachine:
        """Return the newest answer about a machine, or an older one if it cannot be read.

        If there is neither, the list is unavailable, because it would be incomplete.
        """
        previous, now_s = self._answers.get(row.machine_id), self._client.tools.monotonic()
        if (
            previous is not None
            and previous.normalized_status == row.normalized_status
            and now_s - previous.at_s < _ttl_s(previous)
        ):
            return previous
        try:
            answer = _CachedMachine(now_s, row.normalized_status, self._machine(row.machine_id))
        except (InstanceNotFound, UnprovenNotFound):
            answer = _CachedMachine(now_s, row.normalized_status, {})  # it is listed, so show it as the list has it
        except KeyRejected:
            raise
        except ProviderError:
            if previous is None:
                raise
            return previous
        with self._lock:
            self._answers[row.machine_id] = answer
        return answer


def _ttl_s(answer: _CachedMachine) -> float:
    return _COMPLETE_TTL_S if is_complete(answer.machine) else _INCOMPLETE_TTL_S
