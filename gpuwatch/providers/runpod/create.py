"""The create request and its answer. Pure; nothing here is logged, because it contains secrets.

source: REST v2 specification 2.0.0 (it refuses unknown fields with 422), and the fields that dstack 0.22.5 sends
(2026-09): the container's command in exec form, and host requirements per GPU.
A pod ends itself by a few shell lines, even if gpuwatch is gone. They rely on this: RunPod puts `runpodctl`,
`RUNPOD_POD_ID` and a key that is scoped to this pod into every pod. The vendor's documents say so (environment
variables, runpodctl; read 2026-11) and show `runpodctl stop pod $RUNPOD_POD_ID` in a pod. They do not state the
permissions of the key. Public projects of 2026 report that `runpodctl remove pod` of the own pod works, and that the
key has no other permission; gpuwatch has not tested it.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from gpuwatch.ports import Created, Order, Volume
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.settings import Option
from gpuwatch.providers.runpod.catalogue import PROVIDER, SECURE, PodPlacement, parse_offer_id
from gpuwatch.providers.toolkit.basic_launcher import created_instance, decoded_order, not_sent, refuse
from gpuwatch.providers.toolkit.first_boot import with_end
from gpuwatch.providers.toolkit.validation import at

# Inputs: END in Unix seconds, LEFT in seconds from the order, for hosts whose clock is slow. The injected runpodctl may
# support only the old word order, or only the new one. curl gets the key over a pipe: no process list shows it.
_LINES: Final = r"""# gpuwatch: this pod ends itself at @WHEN@
(END=@END@ LEFT=@LEFT@ $(command -v setsid) sh -c '
trap "" HUP INT TERM
v() { tr "\0" "\n" </proc/1/environ | sed -n "s/^$1=//p"; }
I=${RUNPOD_POD_ID:-$(v RUNPOD_POD_ID)}
RUNPOD_API_KEY=${RUNPOD_API_KEY:-$(v RUNPOD_API_KEY)}
export RUNPOD_API_KEY
T=; command -v timeout && T="timeout 60"
n=0
while [ $n -lt $LEFT ] && [ $(date +%s) -lt $END ]; do sleep 20; n=$((n+20)); done
while :; do
  for i in 1 2 3; do
    $T runpodctl remove pod "$I" || $T runpodctl pod delete "$I" ||
      printf "header = \"Authorization: Bearer %s\"\n" "$RUNPOD_API_KEY" |
      curl -sf -m 30 -K - -X DELETE "https://api.runpod.io/v2/pods/$I"
    sleep 60
  done
  $T runpodctl stop pod "$I" || $T runpodctl pod stop "$I"; sleep 60
done' </dev/null >/dev/null 2>&1 &)
"""


def self_destruct_lines(at: datetime, now: datetime) -> str:
    """Return lines to put before a start script: they delete the pod, three attempts, then stop it; repeated for ever.

    Args:
        at: when it ends.
        now: the time of the order.
    """
    return with_end(_LINES, at, now)


POD_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
LABEL_LENGTH: Final = 190
_ENDED_STATES: Final = frozenset({"EXITED", "PAUSED", "ERROR", "DEAD", "TERMINATED"})
_MIN_VOLUME_GB: Final = 10
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_SSH: Final = ("22/tcp",)
_JUPYTER: Final = ("8888/http", "22/tcp")
_RUNTYPES: Final = {
    "ssh": _SSH, "ssh_direct": _SSH, "ssh_proxy": _SSH, "jupyter": _JUPYTER, "jupyter_direct": _JUPYTER,
    "jupyter_proxy": _JUPYTER, "args": (), "": (),
}  # fmt: skip
# A command replaces the image's own command, and a container that exits is restarted again and again. So the image's
# usual start (it starts sshd and Jupyter in images that follow the provider's convention) runs beside the script, and
# the pod idles when the script ends.
_HOST_REQUIREMENTS: Final = {
    "min_cuda": "minCudaVersion", "min_ram_gb_per_gpu": "minRamPerGpu", "min_vcpus_per_gpu": "minVcpuCountPerGpu",
}  # fmt: skip
EMPTY: Final[Mapping[str, Option]] = {}
_START_IMAGE: Final = "if [ -x /start.sh ]; then /start.sh & fi\n"
# images that do not follow that convention (pytorch/pytorch, nvidia/cuda) have no SSH server
_SSH_SERVER: Final = """\
if [ ! -x /start.sh ]; then
  [ -x /usr/sbin/sshd ] || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y openssh-server; }
  mkdir -p /run/sshd; ssh-keygen -A; /usr/sbin/sshd
fi
"""
_IDLE: Final = "\nexec sleep infinity"


def create_body(
    order: Order, now: datetime, registry_id: str | None, options: Mapping[str, Option] = EMPTY
) -> dict[str, Any]:
    """Build the create request.

    Args:
        now: the time of the order.
        registry_id: of credentials that are stored at RunPod.
        options: the provider's, including the host requirements per GPU.

    Raises:
        OrderRefused: BAD_ORDER, RunPod does not support it.
    """
    placement = parse_offer_id(order.offer_id)
    if placement is None:
        raise not_sent(PROVIDER, "invalid offer id")
    _check(order, registry_id)
    body: dict[str, Any] = {
        "name": order.label,
        "gpu": {"id": placement.gpu_id, "count": placement.count} | _host_requirements(options),
        "cloud": placement.cloud,
        "disk": max(math.ceil(order.disk_gb), 1),
        "env": dict(order.env),
    }
    optional = {
        "image": order.image or None,
        "templateId": order.template or None,
        "dataCenterIds": data_centres(order, placement) or None,
        "ports": _ports(order) or None,
        "cmd": _command(order, now),
        "registry": registry_id,
        "mounts": None if order.volume is None else _mounts(order.volume, placement),
        "startSsh": True if "ssh" in order.runtype or "jupyter" in order.runtype else None,
        "startJupyter": True if "jupyter" in order.runtype else None,
    }
    return body | {key: value for key, value in optional.items() if value is not None}


def data_centres(order: Order, placement: PodPlacement) -> list[str]:
    """Return the data centres that the order names; empty: RunPod chooses.

    The secure cloud has stock per data centre. The community cloud refuses nearly every order that names one, also one
    for which it lists stock, so only `regions` of the watch does.
    """
    if placement.cloud == SECURE:
        return [placement.place] if placement.place is not None else []
    return list(order.places)


def parse_created(reply: HttpReply) -> Created:
    """Return the receipt in a 2xx to a create. Raises OutcomeUnknown: it does not name the pod."""
    value = decoded_order(reply, PROVIDER)
    created = created_instance(at(value, "id"), POD_ID, PROVIDER)
    return msgspec.structs.replace(created, starting=str(at(value, "status")) not in _ENDED_STATES)


def _check(order: Order, registry_id: str | None) -> None:
    is_not_stored = order.registry is not None and registry_id is None
    reasons = {
        "RunPod no longer accepts bids": order.bid_usd_hour is not None,
        'self_destruct requires an onstart and a runtype other than "args"': _lacks_self_destruct(order),
        "neither an image nor a template is set": not order.image and not order.template,
        f"the label must have 1 to {LABEL_LENGTH} characters": not 1 <= len(order.label) <= LABEL_LENGTH,
        "it accepts only the id of stored credentials: set options.registry_id": is_not_stored,
        f"unknown runtype; expected one of {', '.join(filter(None, _RUNTYPES))}": order.runtype not in _RUNTYPES,
        "invalid disk size": not math.isfinite(order.disk_gb) or order.disk_gb > 1e6,
    }
    refuse(PROVIDER, reasons)


def _lacks_self_destruct(order: Order) -> bool:
    """Whether gpuwatch's command would replace the image's own command, and with it the service of the image."""
    return order.self_destruct_at is not None and (not order.onstart or order.runtype == "args")


def _ports(order: Order) -> list[str]:
    """Return container ports in the wire format; RunPod chooses the external ports."""
    found = dict.fromkeys(_RUNTYPES[order.runtype])
    for port in order.ports:
        if ":" in port:
            raise not_sent(PROVIDER, f"port {port[:20]!r}: RunPod chooses the external port; set only the internal one")
        if not _PORT.fullmatch(port) or int(port) > 65_535:
            raise not_sent(PROVIDER, f"port {port[:20]!r}: RunPod opens only TCP ports")
        found[f"{port}/tcp"] = None
    return list(found)


def _command(order: Order, now: datetime) -> list[str] | None:
    """Return what the container runs instead of the image's command, in exec form; unchanged with runtype `args`."""
    if not order.onstart:
        return None
    if order.runtype != "args":
        server = _SSH_SERVER if order.needs_ssh else ""
        self_destruct = "" if order.self_destruct_at is None else self_destruct_lines(order.self_destruct_at, now)
        return ["bash", "-c", self_destruct + _START_IMAGE + server + order.onstart + _IDLE]
    try:
        return shlex.split(order.onstart)
    except ValueError:
        raise not_sent(PROVIDER, 'onstart has an unclosed quote; with runtype "args" it is a command') from None


def _host_requirements(options: Mapping[str, Option]) -> dict[str, Any]:
    """Return placement filters, per GPU."""
    requirements = {field: options.get(name) for name, field in _HOST_REQUIREMENTS.items()}
    return {field: value for field, value in requirements.items() if value is not None}


def _mounts(volume: Volume, placement: PodPlacement) -> dict[str, Any]:
    """Return a network volume by its id, or a new volume disk on the host."""
    if not volume.mount.startswith("/") or any(character.isspace() for character in volume.mount):
        raise not_sent(PROVIDER, "a volume's mount must be an absolute path without spaces")
    if volume.volume_id is not None and volume.size_gb is None:
        if placement.place is None:
            raise not_sent(PROVIDER, "a network volume requires an offer with a data centre, in the secure cloud")
        if not POD_ID.fullmatch(volume.volume_id):
            raise not_sent(PROVIDER, "invalid network volume id")
        return {"network": [{"volumeId": volume.volume_id, "path": volume.mount}]}
    if volume.volume_id is None and volume.size_gb is not None and volume.size_gb >= _MIN_VOLUME_GB:
        return {"persistent": {"size": math.ceil(volume.size_gb), "path": volume.mount}}
    raise not_sent(PROVIDER, f"a volume requires volume_id or a size_gb of at least {_MIN_VOLUME_GB}, not both")
