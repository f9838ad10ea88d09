"""The create request, its answer, and what an offer id says. Pure; nothing here is logged: it contains secrets.

TensorDock names GPUs such as `geforcertx4090-pcie-24gb`, and countries in English.
"""

from __future__ import annotations

import base64
import re
import shlex
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from math import ceil
from typing import Any, Final
from uuid import UUID

import msgspec

from gpuwatch.domain.market.gpu_names import GpuName, catalog
from gpuwatch.errors import OutcomeUnknown
from gpuwatch.ports import Created, Order
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.settings import Option
from gpuwatch.providers.tensordock.error_mapping import NAME, ordering, status_of
from gpuwatch.providers.toolkit.basic_launcher import created_instance, not_sent, refuse
from gpuwatch.providers.toolkit.error_mapping import read_error_body
from gpuwatch.providers.toolkit.first_boot import first_boot_script, shutdown_timer
from gpuwatch.providers.toolkit.validation import at

MIN_DISK_GB: Final = 100.0
ID_LENGTH: Final = 64  # the size of the store's column
PLACE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")  # of a location, a host or a machine
GPU: Final = re.compile(r"[A-Za-z0-9._-]{2,40}")  # TensorDock's id of a model
_MEMORY: Final = re.compile(r"-(\d{1,3})gb$")
_OFFER: Final = re.compile(r"([a-z])([A-Za-z0-9_-]{1,40})/([A-Za-z0-9._-]{2,40})/(\d{1,2})/(\d{1,4})/(\d{1,5})")


def gpu_of(v0_name: str, display_name: str | None) -> tuple[GpuName, float | None]:
    """Return the GPU of an id such as `h100-sxm5-80gb`, and the memory of one in GB, if the id contains it.

    Args:
        display_name: the display name; used if the id is unknown.
    """
    found = _MEMORY.search(v0_name)
    memory_gb = float(found[1]) if found else None
    name = catalog().resolve(v0_name, memory_gb)
    if not name.known and display_name:
        by_display_name = catalog().resolve(display_name, memory_gb)
        name = by_display_name if by_display_name.known else name
    return name, memory_gb


class OfferKey(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an offer id: all that an order needs."""

    place: str
    is_host: bool  # `place` is a host, not a location
    gpu: str  # TensorDock's id of the GPU
    count: int
    vcpu: int
    ram_gb: int

    @property
    def offer_id(self) -> str:
        """The id, such as `ljdlf8N_5SJyJArNmpqsbEA/geforcertx4090-pcie-24gb/2/16/64`; 22 characters encode a UUID."""
        prefix, place = _encode_place(self.place)
        return f"{prefix.upper() if self.is_host else prefix}{place}/{self.gpu}/{self.count}/{self.vcpu}/{self.ram_gb}"

    @property
    def machine_id(self) -> str:
        """The stable id: one GPU model at one place, whatever the other resources."""
        return f"{_encode_place(self.place)[1]}/{self.gpu}"


def parse_offer_key(offer_id: str) -> OfferKey | None:
    """Parse an offer id; None: it is not an id of TensorDock."""
    found = _OFFER.fullmatch(offer_id[:1].lower() + offer_id[1:])
    if found is None or found[1] not in _DECODERS:
        return None
    place = _DECODERS[found[1]](found[2])
    if place is None or not PLACE.fullmatch(place):
        return None
    return OfferKey(
        place=place,
        is_host=offer_id[0].isupper(),
        gpu=found[3],
        count=int(found[4]),
        vcpu=int(found[5]),
        ram_gb=int(found[6]),
    )


def _encode_place(place: str) -> tuple[str, str]:
    """Encode a UUID in 22 characters ("u"), any other id unchanged ("p")."""
    try:
        number = UUID(place)
    except ValueError:
        return "p", place
    if str(number) != place:
        return "p", place
    return "u", base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")


def _decode_uuid(text: str) -> str | None:
    try:
        return str(UUID(bytes=base64.urlsafe_b64decode(f"{text}==")))
    except ValueError:
        return None


def _unchanged(text: str) -> str | None:
    return text


_DECODERS: Final = {"u": _decode_uuid, "p": _unchanged}

_COUNTRIES: Final = {
    "argentina": "AR", "australia": "AU", "austria": "AT", "belgium": "BE", "brazil": "BR", "bulgaria": "BG",
    "canada": "CA", "chile": "CL", "china": "CN", "colombia": "CO", "croatia": "HR", "cyprus": "CY", "czechia": "CZ",
    "czech republic": "CZ", "denmark": "DK", "england": "GB", "estonia": "EE", "finland": "FI", "france": "FR",
    "georgia": "GE", "germany": "DE", "great britain": "GB", "greece": "GR", "hong kong": "HK", "hungary": "HU",
    "iceland": "IS", "india": "IN", "indonesia": "ID", "ireland": "IE", "israel": "IL", "italy": "IT", "japan": "JP",
    "kazakhstan": "KZ", "korea": "KR", "latvia": "LV", "lithuania": "LT", "luxembourg": "LU", "malaysia": "MY",
    "malta": "MT", "mexico": "MX", "moldova": "MD", "netherlands": "NL", "the netherlands": "NL", "new zealand": "NZ",
    "nigeria": "NG", "norway": "NO", "pakistan": "PK", "philippines": "PH", "poland": "PL", "portugal": "PT",
    "romania": "RO", "russia": "RU", "saudi arabia": "SA", "serbia": "RS", "singapore": "SG", "slovakia": "SK",
    "slovenia": "SI", "south africa": "ZA", "south korea": "KR", "spain": "ES", "sweden": "SE", "switzerland": "CH",
    "taiwan": "TW", "thailand": "TH", "turkey": "TR", "ukraine": "UA", "united arab emirates": "AE",
    "united kingdom": "GB", "uk": "GB", "united states": "US", "united states of america": "US", "usa": "US",
    "vietnam": "VN",
}  # fmt: skip


def country_of(name: str | None) -> str | None:
    """Return the ISO 3166 alpha-2 code of an English country name; None: unknown."""
    if name is None:
        return None
    if len(name) == 2 and name.isascii() and name.isalpha():
        return name.upper()
    return _COUNTRIES.get(name.casefold())


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
    """Check a destroy's 2xx answer. Raises OrderError: the answer's error; NoSuchObject: it is already gone."""
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
