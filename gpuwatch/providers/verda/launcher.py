"""The launcher of Verda: creates and ends a start script, an instance and its system disk.

The disk is a volume with a price of its own. A spot instance deletes it itself; gpuwatch deletes it with any other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuwatch.errors import OrderError, OrderRefused, OutcomeUnknown, PayloadChanged, ProviderError, RefusalKind
from gpuwatch.ports import Created, Instance, InstanceState, Order
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import Prerequisite
from gpuwatch.ports.settings import Option
from gpuwatch.providers.toolkit.api_launcher import ApiLauncher
from gpuwatch.providers.toolkit.basic_launcher import (
    created_instance,
    id_and_status,
    instance_rows,
    match_offer_id,
    refuse_beyond_machine,
    require_ssh_key,
    ssh_key_prerequisite,
)
from gpuwatch.providers.toolkit.error_mapping import InstanceGone
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.post_processing import RowSkipped
from gpuwatch.providers.toolkit.validation import at, number, objects, parse_utc, usd_hour, whole, word
from gpuwatch.providers.verda.client import PROVIDER, VerdaClient
from gpuwatch.providers.verda.offers import MIN_DISK_GB, hardware_of

_NAME_LENGTH: Final = 60  # source: dstack's backend, for hostname and description
_OFFER: Final = re.compile(r"([A-Za-z0-9_.-]{1,40})/([A-Z0-9-]{1,16})(/spot)?")
_ID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_IMAGE: Final = "ubuntu-24.04-cuda-12.8-open-docker"  # source: the vendor's client
_LEGACY_IMAGE: Final = "2088da25-bb0d-41cc-a191-dccae45d96fd"  # Ubuntu 22.04, CUDA 12.0. source: dstack's backend
_LEGACY_TYPES: Final = re.compile(r"\d+(V100|A6000)\.")  # newer images do not support them. source: the same
_HOSTNAME: Final = re.compile(r"[^a-z0-9-]+")
_NO_CAPACITY: Final = "no_capacity"
# source: the vendor's Go SDK (instances_types.go) and Python SDK (constants.py), read 2026-11
STATUS_WORDS: Final = StatusWords({
    **dict.fromkeys(("new", "ordered", "validating", "pending", "provisioning", "restoring"), InstanceState.STARTING),
    "running": InstanceState.RUNNING,
    **dict.fromkeys(("offline", "starting_hibernation", "hibernating"), InstanceState.STOPPED),
    **dict.fromkeys(("error", _NO_CAPACITY, "notfound"), InstanceState.FAILED),
    "deleting": InstanceState.ENDING,
    **dict.fromkeys(("discontinued", "deleted"), InstanceState.ENDED),
    "unknown": InstanceState.UNKNOWN,
})  # fmt: skip


class VerdaLauncher(ApiLauncher):
    """Rents at Verda. Requires a balance in the account, and the id of an SSH key in the settings."""

    name, instance_id = PROVIDER, _ID

    def __init__(self, account: VerdaClient, options: Mapping[str, Option]) -> None:
        super().__init__(account, options)
        self._volumes: dict[str, str] = {}  # instance → its system disk, from the newest answers
        self._labels: dict[str, str] = {}  # instance → its label, the name of its start script

    def create(self, order: Order) -> Created:
        """Rent once. Stores the start script first, and removes it if nothing was created. Raises OrderError."""
        body, script = create_body(order, self._options), first_boot_script(order.onstart, order.env)
        self._account.require_key_to_order()
        if script is not None:
            body["startup_script_id"] = self._store_script(order.label, script)
        try:
            created = parse_created(self.send_create("/instances", body))
        except OutcomeUnknown:
            raise
        except OrderError:
            self._delete_script(body.get("startup_script_id"))
            raise
        self._labels[created.instance_id] = order.label
        return created

    def check_order(self, order: Order) -> None:
        """Build the request. Raises OrderRefused."""
        create_body(order, self._options)

    def list_instances(self) -> Sequence[Instance]:
        """Return every instance of the account that has not ended; the list has no pages. Raises ProviderError."""
        self._account.require_key()
        value = self._account.get("/instances", kind="instances")
        found = instances_of(value)
        for row in objects(value):
            self._record(row)
        return found

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Check that the account has the SSH key of the settings. Only reads; raises nothing."""
        mend = f'add ssh_key = "ID", a key registered at Verda, to [providers.{PROVIDER}.options]'
        return [ssh_key_prerequisite(self._options.get("ssh_key"), self._keys, mend)]

    def _keys(self) -> list[object]:
        self._account.require_key()
        return [row.get("id") for row in objects(self._account.get("/sshkeys", kind="instances"))]

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Parse an instance, ended or not; remembers its disk and its label."""
        self._record(row)
        return _instance(row)

    def end(self, instance_id: str) -> None:
        """Delete an instance, its system disk and its start script. Raises OrderError."""
        if instance_id not in self._volumes and self._is_deleted(instance_id):
            return
        volume = self._volumes.get(instance_id)
        body = {
            "id": [instance_id],
            "action": "delete",
            "volume_ids": [volume] if volume else None,
            "delete_permanently": True,
        }
        try:
            self._account.order("PUT", "/instances", body, kind="delete")
        except InstanceGone:  # an earlier request ended it, but its answer was lost
            self._delete_script_of(instance_id)
            raise
        self._delete_script_of(instance_id)

    def credit_usd(self) -> float | None:
        """Return the balance; None: it is in another currency. Raises ProviderError."""
        self._account.require_key()
        value = self._account.get("/balance", kind="account")
        amount = number(at(value, "amount"), -1e9, 1e9)
        if amount is None:
            raise PayloadChanged(f"{PROVIDER}: the answer has no balance")
        return amount if str(at(value, "currency")).casefold() == "usd" else None

    def _is_deleted(self, instance_id: str) -> bool:
        """Find the disk of an instance. A failure does not prevent the instance from being ended."""
        try:
            found = self.get(instance_id)
            return found is None or found.state is InstanceState.ENDED
        except ProviderError:
            return False

    def _record(self, row: Mapping[str, Any]) -> None:
        instance_id, volume, label = row["id"], row.get("os_volume_id"), word(row.get("description"))
        if isinstance(volume, str) and _ID.fullmatch(volume):
            self._volumes[instance_id] = volume
        if label is not None:
            self._labels[instance_id] = label

    # --- start scripts ------------------------------------------------------------------------------------------------

    def _store_script(self, label: str, script: str) -> str:
        """Store a start script; return its id. Raises OrderRefused: not stored, so nothing is rented."""
        try:
            reply = self._account.order("POST", "/scripts", {"name": label, "script": script}, kind="scripts")
            return parse_created(reply).instance_id
        except OutcomeUnknown as error:
            raise OrderRefused(f"{PROVIDER}: nothing was rented: {error}", RefusalKind.OTHER) from error

    def _delete_script(self, script_id: object) -> None:
        """Remove a start script, if possible: one that stays costs nothing."""
        if not isinstance(script_id, str):
            return
        try:
            self._account.order("DELETE", f"/scripts/{script_id}", kind="scripts")
        except OrderError:
            return

    def _delete_script_of(self, instance_id: str) -> None:
        """Remove the start script of an instance that was just ended: it may contain secrets."""
        label = self._labels.pop(instance_id, None)
        if label is None:
            return
        try:
            stored = objects(self._account.get("/scripts", kind="scripts"))
        except ProviderError:
            return
        for one in stored:
            if one.get("name") == label and isinstance(one.get("id"), str) and _ID.fullmatch(one["id"]):
                self._delete_script(one["id"])


def create_body(order: Order, options: Mapping[str, Option]) -> dict[str, Any]:
    """Build the create request, without a start script. The label is its description, and part of the host name.

    Raises:
        OrderRefused: BAD_ORDER, Verda does not support it.
    """
    match = match_offer_id(order, _OFFER, PROVIDER)
    ssh_key, image = require_ssh_key(options, PROVIDER, "an SSH key", "ID"), options.get("image")
    spot = order.bid_usd_hour is not None
    extra_reasons = {"a spot offer requires a bid, and other offers accept none": spot is not (match[3] is not None)}
    refuse_beyond_machine(order, PROVIDER, "Verda", extra_reasons, label_length=_NAME_LENGTH, takes_bids=True)
    hostname = _HOSTNAME.sub("-", order.label.lower()).strip("-")
    disk_gb = math.ceil(max(order.disk_gb, MIN_DISK_GB))
    return {
        "instance_type": match[1],
        "image": image or (_LEGACY_IMAGE if _LEGACY_TYPES.match(match[1]) else _IMAGE),
        "ssh_key_ids": [ssh_key],
        "hostname": hostname or "gpuwatch",
        "description": order.label,
        "location_code": match[2],
        "is_spot": spot,
        "contract": "SPOT" if spot else "PAY_AS_YOU_GO",
        "pricing": "FIXED_PRICE",
        "os_volume": {
            "name": f"{hostname}-disk",
            "size": disk_gb,
            **({"on_spot_discontinue": "delete_permanently"} if spot else {}),
        },
    }


def parse_created(reply: HttpReply) -> Created:
    """Return the id in a create's 2xx: its body, bare or in quotes. Raises OutcomeUnknown for anything else."""
    return created_instance(reply.body[:100].decode("ascii", "replace").strip().strip('"'), _ID, PROVIDER)


def instances_of(value: object) -> list[Instance]:
    """Parse the instances of `GET /instances` that have not ended.

    Raises:
        PayloadChanged: it is not a list, or a row has no id or status: it might be gpuwatch's.
    """
    rows = instance_rows(value, value, PROVIDER)
    return [_instance(row) for row in rows if not STATUS_WORDS.is_ended(row.get("status"))]


def _instance(row: Mapping[str, Any]) -> Instance:
    instance_id, status = id_and_status(row, PROVIDER)
    state, unknown_status = STATUS_WORDS.read(status)
    wire, memory, count = _hardware(row)
    ip, spot = word(row.get("ip"), 64), row.get("is_spot")
    kind, place = word(row.get("instance_type"), 40), word(row.get("location") or row.get("location_code"), 16)
    return Instance(
        instance_id=instance_id,
        label=word(row.get("description")),
        state=state,
        status=status,
        unknown_status=unknown_status,
        is_placed=status != _NO_CAPACITY,
        machine_id=f"{kind}/{place}" if kind and place else None,
        gpu=None if wire is None else _name(wire, memory),
        gpu_wire=wire,
        gpu_count=count,
        gpu_memory_gib=memory,
        spot=spot is True,
        listed_usd_hour=usd_hour(row.get("price_per_hour")),
        stopped_usd_hour=usd_hour(row.get("price_per_hour")),  # still billed when shut down
        ssh_host=ip,
        ssh_port=22 if ip else None,
        ssh_user="root",
        started_at=parse_utc(row.get("created_at")),
    )


def _hardware(row: Mapping[str, Any]) -> tuple[str | None, float | None, int | None]:
    """Return its hardware, as far as it is readable: an odd value must not hide an instance that is billed."""
    count = whole(at(row, "gpu", "number_of_gpus"), 1, 1_000)
    try:
        wire, memory = hardware_of(row, count or 1)
    except RowSkipped:
        return None, None, count
    return wire, memory if count else None, count


def _name(wire: str, memory_gib: float | None) -> str:
    from gpuwatch.domain.market.gpu_names import catalog  # noqa: PLC0415 - only for renting

    return catalog().resolve(wire, memory_gib).name
