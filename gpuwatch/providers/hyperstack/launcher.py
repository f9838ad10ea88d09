"""The launcher of Hyperstack: create, list, get, delete. The name of a machine is the label."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import Created, Instance, InstanceState, Order
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.ports.settings import Option
from gpuwatch.providers.hyperstack.client import PROVIDER, all_rows
from gpuwatch.providers.hyperstack.offers import gpu_of
from gpuwatch.providers.toolkit.api_launcher import ApiLauncher
from gpuwatch.providers.toolkit.basic_launcher import (
    created_instance,
    decoded_order,
    id_and_status,
    instance_rows,
    match_offer_id,
    refuse_beyond_machine,
    require_ssh_key,
)
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.validation import at, number, objects, whole, word

_NAME_LENGTH: Final = 50
_OFFER: Final = re.compile(r"([A-Za-z0-9_.-]{1,40})/([A-Z0-9-]{1,20})")
_ID: Final = re.compile(r"\d{1,18}")
_MACHINES: Final = "/core/virtual-machines"
_STARTING: Final = ("BUILD", "CREATING", "STARTING", "REBOOTING", "HARD_REBOOT", "RESTORING")
# source: "VM API states and statuses" of the vendor's reference, and SkyPilot's provisioner; read 2026-11
STATUS_WORDS: Final = StatusWords({
    **dict.fromkeys(_STARTING, InstanceState.STARTING),
    "ACTIVE": InstanceState.RUNNING,
    **dict.fromkeys(("STOPPING", "SHUTOFF"), InstanceState.STOPPED),  # billed like a running machine
    **dict.fromkeys(("HIBERNATING", "HIBERNATED"), InstanceState.STOPPED),
    "ERROR": InstanceState.FAILED,
    "DELETING": InstanceState.ENDING,
})  # fmt: skip
_SSH_RULE: Final = {
    "direction": "ingress", "protocol": "tcp", "ethertype": "IPv4", "remote_ip_prefix": "0.0.0.0/0",
    "port_range_min": 22, "port_range_max": 22,
}  # fmt: skip


class HyperstackLauncher(ApiLauncher):
    """Rents at Hyperstack. Requires the name of a key pair in the settings."""

    name, instance_id, instance_path = PROVIDER, _ID, f"{_MACHINES}/{{}}"

    def create(self, order: Order) -> Created:
        """Rent one machine, once. Raises OrderError."""
        body = create_body(order, self._options)
        reply = self.send_create(_MACHINES, body)
        instances = objects(at(decoded_order(reply, PROVIDER), "instances"))
        return created_instance(str(instances[0].get("id")) if len(instances) == 1 else None, _ID, PROVIDER)

    def check_order(self, order: Order) -> None:
        """Build the request. Raises OrderRefused."""
        create_body(order, self._options)

    def list_instances(self) -> Sequence[Instance]:
        """Return every machine of the account, from all pages. Raises ProviderError."""
        self._account.require_key()
        return instances_of(all_rows(self._account, _MACHINES, "instances"))

    def instance_row(self, value: Any) -> object:
        """Return the row, which is within an object."""
        return _with_text_id(at(value, "instance"))

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance; a machine that has ended has no row."""
        return _instance(row)

    def credit_usd(self) -> float | None:
        """Return the credit. Raises ProviderError."""
        self._account.require_key()
        found = number(
            at(self._account.get("/billing/user-credit/credit", kind="account"), "data", "credit"), -1e9, 1e9
        )
        if found is None:
            raise PayloadChanged(f"{PROVIDER}: the answer has no credit balance")
        return found

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Check that the key pair exists in the environment of each region. Only reads; raises nothing."""
        name, key_name = PrerequisiteName.KEY_PAIR, self._options.get("ssh_key")
        if not key_name:
            mend = f'add ssh_key = "NAME", a key pair at Hyperstack, to [providers.{PROVIDER}.options]'
            return [Prerequisite(name=name, met=False, text="options.ssh_key is not set", mend=mend)]
        try:
            self._account.require_key()
            pairs = objects(all_rows(self._account, "/core/keypairs", "keypairs"))
        except ProviderError as error:
            return [Prerequisite(name=name, met=None, text=str(error))]
        environments = {at(pair, "environment", "name") for pair in pairs if pair.get("name") == key_name}
        regions: dict[str, list[str]] = {}
        for order in orders:
            if found := _OFFER.fullmatch(order.offer_id):
                regions.setdefault(found[2], []).append(order.offer_id)
        if not regions:
            return [_key_pair_prerequisite(str(key_name), "", bool(environments), ())]
        return [
            _key_pair_prerequisite(
                str(key_name),
                _environment(self._options, region),
                _environment(self._options, region) in environments,
                ids,
            )
            for region, ids in regions.items()
        ]


def _key_pair_prerequisite(pair: str, place: str, met: bool, offer_ids: Sequence[str]) -> Prerequisite:
    where = f" in the environment {place}" if place else ""
    text = f"the key pair {pair[:40]!r} exists{where}" if met else f"there is no key pair {pair[:40]!r}{where}"
    mend = "" if met else "import it there, or fix options.ssh_key and options.environment"
    name = PrerequisiteName.KEY_PAIR
    return Prerequisite(name=name, met=met, text=text, mend=mend, place=place, offer_ids=tuple(offer_ids))


def _environment(options: Mapping[str, Option], region: str) -> str:
    return str(options.get("environment") or "default-{region}").replace("{region}", region)


def create_body(order: Order, options: Mapping[str, Option]) -> dict[str, Any]:
    """Build the create request: one machine with a public address; its SSH port stays 22.

    Raises:
        OrderRefused: BAD_ORDER, Hyperstack does not support it.
    """
    match = match_offer_id(order, _OFFER, PROVIDER)
    ssh_key = require_ssh_key(options, PROVIDER, "a key pair", "NAME")
    refuse_beyond_machine(order, PROVIDER, "Hyperstack", label_length=_NAME_LENGTH, ports="only SSH is open")
    script = first_boot_script(order.onstart, order.env)
    return {
        "name": order.label,
        "environment_name": _environment(options, match[2]),
        "image_name": options.get("image"),
        "flavor_name": match[1],
        "key_name": ssh_key,
        "count": 1,
        "assign_floating_ip": True,
        "enable_port_randomization": False,
        "security_rules": [_SSH_RULE],
        "labels": ["gpuwatch"],
        **({} if script is None else {"user_data": script}),
    }


def instances_of(rows: list[Any]) -> list[Instance]:
    """Parse the machines of a list. Raises PayloadChanged: a row is malformed, or has no id or status."""
    return [_instance(_with_text_id(row)) for row in instance_rows(None, rows, PROVIDER)]


def _with_text_id(row: Any) -> Any:
    """Convert the id, which is a number in the answer, to text."""
    number_id = whole(row.get("id"), 1, 10**18) if isinstance(row, dict) else None
    return {**row, "id": str(number_id)} if number_id is not None else row


def _instance(row: Mapping[str, Any]) -> Instance:
    instance_id, status = id_and_status(row, PROVIDER)
    if not _ID.fullmatch(instance_id):
        raise PayloadChanged(f"{PROVIDER}: an instance id has an unexpected format")
    ip, flavor = word(row.get("floating_ip"), 64), word(at(row, "flavor", "name"), 40)
    region, wire = word(at(row, "environment", "region"), 20), word(at(row, "flavor", "gpu"), 60)
    gpu, memory_gib = (None, None) if wire is None else gpu_of(wire)
    state, unknown_status = STATUS_WORDS.read(status)
    if state is InstanceState.RUNNING and not ip:
        state = InstanceState.STARTING
    return Instance(
        instance_id=instance_id,
        label=word(row.get("name")),
        state=state,
        status=status,
        unknown_status=unknown_status,
        machine_id=f"{flavor}/{region}" if flavor and region else None,
        gpu=None if gpu is None else gpu.name,
        gpu_wire=wire,
        gpu_count=whole(at(row, "flavor", "gpu_count"), 1, 1_000),
        gpu_memory_gib=memory_gib,
        spot=False,
        ssh_host=ip,
        ssh_port=22 if ip else None,
        ssh_user="ubuntu",
    )
