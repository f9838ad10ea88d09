"""The create request and the meaning of its answer. Pure; nothing here is logged, because it holds secrets.

An instance ends itself by a few shell lines, even if gpuwatch is gone. They rely on this: every container has
`CONTAINER_ID` and `CONTAINER_API_KEY`, a key that can destroy this instance, and `onstart` runs at every start of an
ssh or jupyter instance. The vendor's documents say so (docker environment, read 2026-11), and public projects of 2026
end their instances that way; gpuwatch has not tested it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from gpuwatch.errors import OrderRefused, OutcomeUnknown, RefusalKind
from gpuwatch.ports import Created, Order, Registry, Volume
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.first_boot import with_end
from gpuwatch.providers.vastai.client import ordering_error, read_error_body

_SHELL: Final = re.compile(r"#!.*\b(?:ba|da|a|k|z)?sh\b.*")

# Inputs: END in Unix seconds, LEFT in seconds from the order, for hosts whose clock is slow.
# `( … & )` hides it from a `wait` in the owner's script, setsid moves it to its own process group; no output.
# curl gets the key over a pipe, python in the environment: no process list shows it.
_LINES: Final = r"""# gpuwatch: this instance ends itself at @WHEN@
(END=@END@ LEFT=@LEFT@ $(command -v setsid) sh -c '
trap "" HUP INT TERM
v() { tr "\0" "\n" </proc/1/environ | sed -n "s/^$1=//p"; }
K=${CONTAINER_API_KEY:-$(v CONTAINER_API_KEY)}
U=${VAST_URL:-https://console.vast.ai}/api/v0/instances/${CONTAINER_ID:-$(v CONTAINER_ID)}/
export K U
ask() {
  if command -v curl; then
    printf "header = \"Authorization: Bearer %s\"\n" "$K" |
      curl -s -m 30 -K - -X "$1" -H "Content-Type: application/json" -d "$2" "$U"
  else
    M=$1 B=$2 $(command -v python3 || command -v python) -c "import os,urllib.request as r
e=os.environ
h={\"Authorization\":\"Bearer \"+e[\"K\"],\"Content-Type\":\"application/json\"}
r.urlopen(r.Request(e[\"U\"],e[\"B\"].encode(),h,method=e[\"M\"]),timeout=30)"
  fi
}
n=0
while [ $n -lt $LEFT ] && [ $(date +%s) -lt $END ]; do sleep 20; n=$((n+20)); done
while :; do
  for i in 1 2 3 4 5; do ask DELETE "{}"; sleep 30; done
  ask PUT "{\"state\":\"stopped\"}"; sleep 30
done' </dev/null >/dev/null 2>&1 &)
"""


def with_self_destruct(script: str, at: datetime, now: datetime) -> str | None:
    """Put the lines that end the instance before the owner's script; None: it is not a shell script.

    Five requests to destroy, then one to stop, which at least ends the GPU's bill; repeated for ever.

    Args:
        script: the owner's; a first line `#!…` stays first.
        at: when it ends.
        now: the time of the order.
    """
    lines = with_end(_LINES, at, now)
    if not script.startswith("#!"):
        return lines + script
    first, _, rest = script.partition("\n")
    return f"{first}\n{lines}{rest}" if _SHELL.fullmatch(first.strip()) else None


ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
LABEL_LENGTH: Final = 60
ONSTART_LENGTH: Final = 4_048
_PORT: Final = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})(/(?:tcp|udp))?")
_PORTS_MAX: Final = 64
MIN_DISK_GB: Final = 8.0  # source: vastai.md §6, the smallest disk that can be ordered
_LAST_PORT: Final = 65_535
_SAME_PORTS: Final = range(70_000, 100_000)  # "map me to one number in and out", in the vendor's words
# Names of the wire format, with its misspellings. source: the vendor's client 1.9
RUNTYPES: Final = {
    "ssh": "ssh_direc ssh_proxy",
    "ssh_direct": "ssh_direc ssh_proxy",
    "ssh_proxy": "ssh_proxy",
    "jupyter": "jupyter_direc ssh_direc ssh_proxy",
    "jupyter_direct": "jupyter_direc ssh_direc ssh_proxy",
    "jupyter_proxy": "jupyter_proxy ssh_proxy",
    "args": "args",
}
# Codes that mean that nothing was created, even with status 200.
_REFUSAL_CODES: Final = frozenset({
    "auth_error", "insufficient_credit", "invalid_args", "invalid_price", "missing_billing", "no_ssh_key_for_vm",
    "no_such_ask",
})  # fmt: skip


def create_body(order: Order, now: datetime) -> dict[str, Any]:
    """Build the create request. `price` alone makes it a bid: without it the rental is on demand, at the full price.

    With a template, an empty image or runtype means the template's; the order's `onstart` replaces the template's, and
    its `env` is merged into the template's.

    Raises:
        OrderRefused: the order does not fit into a request.
    """
    if order.bid_usd_hour is not None:
        check_bid(order.bid_usd_hour)
    if len(order.label) > LABEL_LENGTH:
        raise bad_order(f"the label is longer than {LABEL_LENGTH} characters")
    if not order.image and not order.template:
        raise bad_order("neither an image nor a template is set")
    body: dict[str, Any] = {
        "client_id": "me",
        "disk": max(order.disk_gb, MIN_DISK_GB),
        "label": order.label,
        "env": dict(order.env) | _ports(order.ports),
        "cancel_unavail": True,  # bids default to false: an outbid instance is then stopped, and its disk billed
        "force": False,
    }
    optional = {
        "image": order.image or None,
        "runtype": _runtype(order),
        "price": order.bid_usd_hour,
        "onstart": _onstart(order, now),
        "template_hash_id": order.template,
        "image_login": None if order.registry is None else _login(order.registry),
        "volume_info": None if order.volume is None else _volume(order.volume),
    }
    return body | {key: value for key, value in optional.items() if value is not None}


def check_bid(bid_usd_hour: float) -> None:
    """Reject an impossible bid. Raises OrderRefused."""
    if not 0.001 <= bid_usd_hour <= 128:
        raise OrderRefused(f"vastai: a bid of {bid_usd_hour} is outside 0.001 to 128", RefusalKind.BID_TOO_LOW)


def bad_order(reason: str) -> OrderRefused:
    """Return the error of an order that is not sent because it would be refused."""
    return OrderRefused(f"vastai: nothing was sent: {reason}", RefusalKind.BAD_ORDER)


def parse_created(reply: HttpReply, now: datetime) -> Created:
    """Return the receipt of a create. Raises OrderError: the answer reports an error."""
    refusal = read_error_body(reply)
    values = refusal.value
    contract, success = values.get("new_contract"), values.get("success")
    if reply.status != 200 and contract is None:
        raise ordering_error(reply, now)
    instance_id = None if isinstance(contract, bool) or not isinstance(contract, int | str) else str(contract)
    if instance_id is not None and not ID.fullmatch(instance_id):
        instance_id = None
    if reply.status == 200 and isinstance(success, bool) and instance_id is not None:
        return Created(instance_id=instance_id, starting=success)
    if success is False and contract is None and refusal.code in _REFUSAL_CODES:
        raise ordering_error(HttpReply(400, reply.headers, reply.body), now)
    raise OutcomeUnknown(f"vastai: {refusal.summary}: an unexpected answer", instance_id)


def _runtype(order: Order) -> str | None:
    if not order.runtype and order.template:
        return None
    runtype = RUNTYPES.get(order.runtype)
    if runtype is None:
        raise bad_order(f"unknown runtype; expected one of {', '.join(RUNTYPES)}")
    return runtype


def _onstart(order: Order, now: datetime) -> str | None:
    """Return the start script. With runtype `args` it is the entrypoint, which accepts no lines before it."""
    script = order.onstart
    if order.self_destruct_at is not None:
        if order.runtype == "args":
            raise bad_order("self_destruct requires an ssh or jupyter runtype: with args, onstart is the entrypoint")
        if order.template and script is None:
            raise bad_order("self_destruct replaces the template's onstart: set onstart as well")
        script = with_self_destruct(script or "", order.self_destruct_at, now)
        if script is None:
            raise bad_order("self_destruct requires an onstart that is a shell script")
    if script is not None and len(script) > ONSTART_LENGTH:
        added = "" if order.self_destruct_at is None else ", including the lines of self_destruct"
        raise bad_order(f"onstart has {len(script)} characters{added}; vast.ai accepts {ONSTART_LENGTH}")
    return script


def _ports(ports: tuple[str, ...]) -> dict[str, str]:
    """Return Docker's options for opening ports, as the vendor's client spells them."""
    if len(ports) > _PORTS_MAX:
        raise bad_order(f"{len(ports)} ports; vast.ai opens {_PORTS_MAX}")
    return {_option(port): "1" for port in ports}


def _option(port: str) -> str:
    found = _PORT.fullmatch(port)
    if found is None:
        raise bad_order(f'port {port[:20]!r}: expected "8000", "8080:8000" or "53/udp"')
    internal_port, external_port, protocol = found[2], found[1] or found[2], found[3] or ""
    for number in (int(internal_port), int(external_port)):
        if not 0 < number <= _LAST_PORT and number not in _SAME_PORTS:
            raise bad_order(f"port {number} is outside 1 to {_LAST_PORT}")
    return f"-p {external_port}:{internal_port}{protocol}"


def _login(registry: Registry) -> str:
    """Return Docker's login arguments; the wire format cannot quote them."""
    values = (registry.username, registry.password, registry.server)
    if not all(values) or any(character.isspace() or character in "\"'" for value in values for character in value):
        raise bad_order("the registry's server, username and password must be set, without spaces and quotes")
    return f"-u {registry.username} -p {registry.password} {registry.server}"


def _volume(volume: Volume) -> dict[str, Any]:
    """Return an existing volume, or a new one from a volume offer: `volume_id` is then the id of that offer."""
    if not volume.mount.startswith("/") or any(character.isspace() for character in volume.mount):
        raise bad_order("a volume's mount must be an absolute path without spaces")
    if volume.volume_id is None or not (volume.volume_id.isascii() and volume.volume_id.isdigit()):
        raise bad_order("a volume requires volume_id; for a new one, the id of the machine's volume offer and size_gb")
    info: dict[str, Any] = {
        "mount_path": volume.mount,
        "create_new": volume.size_gb is not None,
        "volume_id": int(volume.volume_id),
    }
    return info if volume.size_gb is None else info | {"size": volume.size_gb}
