"""The create request and its answer. Pure; nothing here is logged, because it contains secrets."""

from __future__ import annotations

import re
import shlex
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from math import ceil
from typing import Any, Final

from gpuwatch.errors import OutcomeUnknown
from gpuwatch.ports import Created, Order
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.settings import Option
from gpuwatch.providers.tensordock.error_mapping import NAME, ordering, status_of
from gpuwatch.providers.tensordock.names import PLACE, OfferKey, parse_offer_key
from gpuwatch.providers.tensordock.offers import MIN_DISK_GB
from gpuwatch.providers.toolkit.basic_launcher import created_instance, not_sent, refuse
from gpuwatch.providers.toolkit.error_mapping import read_error_body
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.toolkit.shutdown_timer import shutdown_timer
from gpuwatch.providers.toolkit.validation import at

_NAME_LENGTH: Final = 60  # this length is known to work
_PORT: Final = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})(?:/tcp)?")
_LAST_PORT: Final = 65_535
_SSH_PORT: Final = 22
PUBLIC_KEY: Final = re.compile(r"[a-z][a-z0-9@.-]{2,40} [A-Za-z0-9+/=]{20,}(?: .*)?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# The vendor's own installation of keys failed for one team, so the first script repeats it for the user of its images.
_LOGIN: Final = (
    "if cd /home/user; then mkdir -p .ssh; cd .ssh;"
    " grep -qsxF @KEY@ authorized_keys || printf '%s\\n' @KEY@ >>authorized_keys;"
    " chmod 700 .; chmod 600 authorized_keys; chown -R --reference=/home/user .; fi; cd /"
)


def create_body(order: Order, options: Mapping[str, Option], now: datetime) -> dict[str, Any]:
    """Build the create request. Refuses what TensorDock does not have.

    Raises:
        OrderRefused: the order does not fit into a request.
    """
    offer_key, key = parse_offer_key(order.offer_id), options.get("ssh_key")
    if offer_key is None:
        raise not_sent(NAME, "invalid offer id")
    _check(order)
    if not isinstance(key, str) or not PUBLIC_KEY.fullmatch(key):
        raise not_sent(NAME, f"providers.{NAME}.options.ssh_key must be a public key; it is required for renting")
    attributes = {
        "name": order.label,
        "type": "virtualmachine",
        "image": options.get("image"),
        "resources": _resources(offer_key, order.disk_gb),
        ("hostnode_id" if offer_key.is_host else "location_id"): offer_key.place,
        "useDedicatedIp": False,
        "port_forwards": _forwards(order.ports),
        "ssh_key": key,
        "cloud_init": {"runcmd": _commands(order, key, now)},
    }
    return {"data": {"type": "virtualmachine", "attributes": attributes}}


def parse_created(reply: HttpReply, now: datetime) -> Created:
    """Return the receipt in a create's 2xx answer, which may also contain an error.

    Raises:
        OrderError: the answer's error; OutcomeUnknown: it names no machine.
    """
    body = read_error_body(reply)
    if not 200 <= status_of(reply, body.value) < 300:
        raise ordering(NAME, body, reply, now)
    return created_instance(at(body.value, "data", "id") or at(body.value, "id"), PLACE, NAME)


def check_destroyed(reply: HttpReply, now: datetime) -> None:
    """Check a destroy's 2xx answer. Raises OrderError: the answer's error; NoSuchMachine: it is already gone."""
    body = read_error_body(reply)
    if not 200 <= status_of(reply, body.value) < 300:
        raise ordering(NAME, body, reply, now)
    if reply.status != 204 and not isinstance(body.value, dict):
        raise OutcomeUnknown(f"{NAME}: {body.status} an unexpected answer")


def _check(order: Order) -> None:
    """Refuse what TensorDock's machines do not support."""
    unsupported = {
        "a bid": order.bid_usd_hour is not None,
        "a template": order.template is not None,
        "a registry": order.registry is not None,
        "a volume": order.volume is not None,
        f"runtype {order.runtype[:20]!r}": order.runtype not in ("ssh", "ssh_direct"),
    }
    names = {
        f"the label is longer than {_NAME_LENGTH} characters": len(order.label) > _NAME_LENGTH,
        "names of environment variables may contain only letters, digits and _": not all(
            map(_VARIABLE.fullmatch, order.env)
        ),
    }
    refuse(
        NAME,
        {f"TensorDock does not support {what}": is_requested for what, is_requested in unsupported.items()} | names,
    )


def _resources(offer_key: OfferKey, disk_gb: float) -> dict[str, Any]:
    return {
        "vcpu_count": offer_key.vcpu,
        "ram_gb": offer_key.ram_gb,
        "storage_gb": ceil(max(disk_gb, MIN_DISK_GB)),
        "gpus": {offer_key.gpu: {"count": offer_key.count}},
    }


def _forwards(ports: tuple[str, ...]) -> list[dict[str, int]]:
    """Return port 22, and those of the settings. TensorDock may choose another external port."""
    forwards = {_SSH_PORT: _SSH_PORT}
    for port in ports:
        found = _PORT.fullmatch(port)
        if found is None:
            raise not_sent(NAME, f'port {port[:20]!r}: expected "8000" or "8080:8000"; only TCP is forwarded')
        internal_port, external_port = int(found[2]), int(found[1] or found[2])
        if not (0 < internal_port <= _LAST_PORT and 0 < external_port <= _LAST_PORT):
            raise not_sent(NAME, f"port {port[:20]!r} is outside 1 to {_LAST_PORT}")
        forwards[internal_port] = external_port
    return [
        {"internal_port": internal_port, "external_port": external_port}
        for internal_port, external_port in forwards.items()
    ]


def _commands(order: Order, key: str, now: datetime) -> list[str]:
    """Return what the machine runs once, as root, in one line each: longer fields of cloud-init did not work."""
    commands = [_LOGIN.replace("@KEY@", shlex.quote(key))]
    if order.self_destruct_at is not None:
        commands.append(_encoded_command(shutdown_timer(order.self_destruct_at, now), "gpuwatch-end"))
    script = first_boot_script(order.onstart, order.env)
    if script is not None:
        commands.append(_encoded_command(script, "gpuwatch-boot"))
    return commands


def _encoded_command(script: str, name: str) -> str:
    encoded = b64encode(script.encode()).decode()
    return f"umask 077; echo {encoded} | base64 -d >/root/{name}; bash /root/{name}"
