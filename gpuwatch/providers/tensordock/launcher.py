"""The launcher of TensorDock. Requests that change something are sent once, whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderError
from gpuwatch.ports import Created, Instance, Order
from gpuwatch.ports.prerequisites import Prerequisite
from gpuwatch.ports.settings import Option
from gpuwatch.providers.tensordock.create import PUBLIC_KEY, check_destroyed, create_body, parse_created
from gpuwatch.providers.tensordock.error_mapping import NAME, MachineNotFound, NoSuchMachine, NotFound, accepted_value
from gpuwatch.providers.tensordock.machines import (
    STATUS_WORDS,
    MachineRow,
    instance_of,
    is_complete,
    machine_of,
    row_of,
    rows_of,
)
from gpuwatch.providers.tensordock.names import PLACE
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.basic_launcher import BasicLauncher, not_sent, public_key_prerequisite

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
        except MachineNotFound:
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
        except NoSuchMachine:
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
        except NotFound:
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
