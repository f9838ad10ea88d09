"""The launcher of Vultr: create, list, get, delete. An instance's row may contain its first password: never read."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpuwatch.errors import ProviderError
from gpuwatch.ports import Created, Instance, InstanceState, Order
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.ports.settings import Option
from gpuwatch.providers.toolkit.api_launcher import ApiLauncher
from gpuwatch.providers.toolkit.basic_launcher import (
    created_instance,
    decoded_order,
    id_and_status,
    instance_rows,
    match_offer_id,
    refuse_beyond_machine,
    require_ssh_key,
    ssh_key_prerequisite,
)
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.toolkit.instance_status import ReadStatus, StatusWords
from gpuwatch.providers.toolkit.machine_type import fields_of_instance
from gpuwatch.providers.toolkit.validation import at, number, objects, parse_utc, word
from gpuwatch.providers.vultr.client import PROVIDER, VultrClient, all_rows
from gpuwatch.providers.vultr.offers import VultrPlan

_LABEL_LENGTH: Final = 64
_OFFER: Final = re.compile(r"(vcg-[a-z0-9-]{1,40})/([a-z]{3,8})")
_ID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_UBUNTU_22_04: Final = 1743  # includes docker and the card's driver on a plan with GPUs. source: dstack's backend
_RENT_PERMISSION: Final = "provisioning"  # source: the tests of the vendor's Go client
_HOSTNAME: Final = re.compile(r"[^a-z0-9-]+")
_NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - shown by a pending instance
# source: the vendor's API v2 reference (instance); "failed" by dstack's backend, "closed" by API v1; read 2026-11
STATUS_WORDS: Final = StatusWords({
    "pending": InstanceState.STARTING,
    "active": InstanceState.RUNNING,
    "suspended": InstanceState.OFFLINE,
    "resizing": InstanceState.UNKNOWN,  # it runs before and after
    "failed": InstanceState.FAILED,
    "closed": InstanceState.ENDING,
})  # fmt: skip
POWER_WORDS: Final = StatusWords({"running": InstanceState.RUNNING, "stopped": InstanceState.STOPPED}, "power_status")
SERVER_WORDS: Final = StatusWords({
    **dict.fromkeys(("none", "locked", "installingbooting", "isomounting"), InstanceState.STARTING),
    "ok": InstanceState.RUNNING,
}, "server_status")  # fmt: skip
PlanLookup = Callable[[str], VultrPlan | None]


class VultrLauncher(ApiLauncher):
    """Rents at Vultr. Requires the id of an SSH key in the settings.

    Args:
        plan_of: returns the plan of a name, as last read; None: not read yet.
    """

    name, instance_id = PROVIDER, _ID

    def __init__(self, account: VultrClient, options: Mapping[str, Option], plan_of: PlanLookup) -> None:
        super().__init__(account, options)
        self._plan_of = plan_of

    def create(self, order: Order) -> Created:
        """Rent once. Raises OrderError."""
        body = create_body(order, self._options)
        reply = self.send_create("/instances", body)
        return created_instance(at(decoded_order(reply, PROVIDER), "instance", "id"), _ID, PROVIDER)

    def check_order(self, order: Order) -> None:
        """Build the request. Raises OrderRefused."""
        create_body(order, self._options)

    def list_instances(self) -> Sequence[Instance]:
        """Return every virtual machine of the account, from all pages. Raises ProviderError."""
        self._account.require_key()
        return instances_of(all_rows(self._account, "/instances", "instances", kind="instances"), self._plan_of)

    def instance_row(self, value: Any) -> object:
        """Return the row, which is within an object."""
        return at(value, "instance")

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance, with the price of its plan."""
        return _instance(row, self._plan_of)

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Check that the key may rent, and that the account has the SSH key of the settings. Raises nothing."""
        return [self._rent_permission(), self._ssh_key()]

    def _rent_permission(self) -> Prerequisite:
        name = PrerequisiteName.CREDENTIALS
        try:
            self._account.require_key()
            permissions = at(self._account.get("/account", kind="instances"), "account", "acls")
        except ProviderError as error:
            return Prerequisite(name=name, met=None, text=str(error))
        if not isinstance(permissions, list) or not permissions:
            return Prerequisite(name=name, met=None, text="Vultr does not state the permissions of the key")
        if _RENT_PERMISSION in permissions:
            return Prerequisite(name=name, met=True, text=f"the key has the permission {_RENT_PERMISSION}")
        text, mend = (
            f"the key lacks the permission {_RENT_PERMISSION}",
            f"grant its user the permission {_RENT_PERMISSION}",
        )
        # not blocking: the permission comes from a vendor's example, and a refused order costs nothing
        return Prerequisite(name=name, met=False, text=text, mend=mend, is_blocking=False)

    def _ssh_key(self) -> Prerequisite:
        mend = f'add ssh_key = "ID", a key registered at Vultr, to [providers.{PROVIDER}.options]'
        return ssh_key_prerequisite(self._options.get("ssh_key"), self._keys, mend)

    def _keys(self) -> list[object]:
        self._account.require_key()
        return [row.get("id") for row in objects(all_rows(self._account, "/ssh-keys", "ssh_keys", kind="instances"))]


def create_body(order: Order, options: Mapping[str, Option]) -> dict[str, Any]:
    """Build the create request. Switches off backups, which cost, and the mail about the machine.

    Raises:
        OrderRefused: BAD_ORDER, Vultr does not support it.
    """
    match = match_offer_id(order, _OFFER, PROVIDER)
    ssh_key = require_ssh_key(options, PROVIDER, "an SSH key", "ID")
    image = str(options.get("image") or _UBUNTU_22_04)
    extra_reasons = {
        "options.image is not the number of an operating system": not (image.isascii() and image.isdigit())
    }
    refuse_beyond_machine(order, PROVIDER, "Vultr", extra_reasons, label_length=_LABEL_LENGTH)
    script = first_boot_script(order.onstart, order.env)
    return {
        "region": match[2],
        "plan": match[1],
        "label": order.label,
        "hostname": _HOSTNAME.sub("-", order.label.lower()).strip("-") or "gpuwatch",
        "os_id": int(image),
        "sshkey_id": [ssh_key],
        "backups": "disabled",
        "enable_ipv6": False,
        "activation_email": False,
        **({} if script is None else {"user_data": b64encode(script.encode()).decode()}),
    }


def instances_of(rows: list[Any], plan_of: PlanLookup) -> list[Instance]:
    """Parse the instances of a list. Raises PayloadChanged: a row is malformed, or has no id or status."""
    return [_instance(row, plan_of) for row in instance_rows(None, rows, PROVIDER)]


def _instance(row: Mapping[str, Any], plan_of: PlanLookup) -> Instance:
    """Parse one row. Raises PayloadChanged: it has no id or status: it might be gpuwatch's."""
    instance_id, status = id_and_status(row, PROVIDER)
    state, unknown_status = _status(row, status)
    kind, place, ip = word(row.get("plan"), 44), word(row.get("region"), 8), word(row.get("main_ip"), 64)
    plan = None if kind is None else plan_of(kind)
    price = None if plan is None or place is None else plan.price_at(place)
    host = None if ip == _NO_ADDRESS else ip
    return Instance(
        instance_id=instance_id,
        label=word(row.get("label")),
        state=state,
        status=status,
        unknown_status=unknown_status,
        machine_id=f"{kind}/{place}" if kind and place else None,
        spot=False,
        listed_usd_hour=price,
        stopped_usd_hour=price,  # still billed when stopped
        ssh_host=host,
        ssh_port=22 if host else None,
        ssh_user="root",
        started_at=parse_utc(row.get("date_created")),
        **fields_of_instance(plan) | {"disk_gb": number(row.get("disk"), 0, 1e7)},
    )


def _status(row: Mapping[str, Any], status: str) -> ReadStatus:
    """Return the state: `status` is the contract's, `power_status` the machine's, `server_status` the system's."""
    contract = STATUS_WORDS.read(status)
    if contract.state is not InstanceState.RUNNING:
        return contract
    server, power = (word(row.get(field), 40) for field in ("server_status", "power_status"))
    system = SERVER_WORDS.read(server) if server else ReadStatus(InstanceState.RUNNING)
    if system.state is InstanceState.STARTING:
        return system
    machine = POWER_WORDS.read(power) if power else ReadStatus(InstanceState.UNKNOWN)
    return ReadStatus(machine.state, machine.unknown or system.unknown)
