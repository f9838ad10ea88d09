"""The create request, and what its answer means. Pure; nothing here is logged, for it holds secrets.

source: REST v2 specification 2.0.0 (a field that it does not know is refused with 422), and the fields that dstack
0.22.5 sends (2026-09): the container's command in exec form, and needs of the host for each GPU.
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
from gpuwatch.providers.runpod.catalogue import PROVIDER
from gpuwatch.providers.runpod.offer_ids import PodPlacement, read_offer_id
from gpuwatch.providers.runpod.self_destruct import self_destruct_lines
from gpuwatch.providers.toolkit.basic_launcher import created_instance, decoded_order, not_sent, refuse
from gpuwatch.providers.toolkit.validation import at

POD_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
LABEL_LENGTH: Final = 190
_DEAD: Final = frozenset({"EXITED", "ERROR", "TERMINATED"})
_LEAST_VOLUME_GB: Final = 10
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_SSH: Final = ("22/tcp",)
_JUPYTER: Final = ("8888/http", "22/tcp")
_RUNTYPES: Final = {
    "ssh": _SSH, "ssh_direct": _SSH, "ssh_proxy": _SSH, "jupyter": _JUPYTER, "jupyter_direct": _JUPYTER,
    "jupyter_proxy": _JUPYTER, "args": (), "": (),
}  # fmt: skip
# A command takes the place of the image's own command, and a container that ends is started again and again. So the
# image's usual start (it brings up sshd and Jupyter in images that follow the provider's convention) runs beside the
# script, and what remains when that ends is a pod that idles.
_HOST_NEEDS: Final = {
    "min_cuda": "minCudaVersion", "min_ram_gb_per_gpu": "minRamPerGpu", "min_vcpus_per_gpu": "minVcpuCountPerGpu",
}  # fmt: skip
EMPTY: Final[Mapping[str, Option]] = {}
_BESIDE: Final = "if [ -x /start.sh ]; then /start.sh & fi\n"
# images that do not follow that convention (pytorch/pytorch, nvidia/cuda) bring no SSH server
_SSH_SERVER: Final = """\
if [ ! -x /start.sh ]; then
  [ -x /usr/sbin/sshd ] || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y openssh-server; }
  mkdir -p /run/sshd; ssh-keygen -A; /usr/sbin/sshd
fi
"""
_AFTER: Final = "\nexec sleep infinity"


def create_body(
    order: Order, now: datetime, registry_id: str | None, options: Mapping[str, Option] = EMPTY
) -> dict[str, Any]:
    """The create request.

    Args:
        now: the moment of the order.
        registry_id: of credentials that are saved at RunPod.
        options: the provider's; what each GPU needs of the host is among them.

    Raises:
        OrderRefused: BAD_ORDER, RunPod cannot do what it asks for.
    """
    wanted = read_offer_id(order.offer_id)
    if wanted is None:
        raise not_sent(PROVIDER, "that is no id of an offer there")
    _check(order, registry_id)
    body: dict[str, Any] = {
        "name": order.label,
        "gpu": {"id": wanted.gpu_id, "count": wanted.count} | _host_needs(options),
        "cloud": wanted.cloud,
        "disk": max(math.ceil(order.disk_gb), 1),
        "env": dict(order.env),
    }
    optional = {
        "image": order.image or None,
        "templateId": order.template or None,
        "dataCenterIds": [wanted.place] if wanted.place is not None else None,
        "ports": _ports(order) or None,
        "cmd": _command(order, now),
        "registry": registry_id,
        "mounts": None if order.volume is None else _mounts(order.volume, wanted),
        "startSsh": True if "ssh" in order.runtype or "jupyter" in order.runtype else None,
        "startJupyter": True if "jupyter" in order.runtype else None,
    }
    return body | {key: value for key, value in optional.items() if value is not None}


def created(reply: HttpReply) -> Created:
    """The receipt in a 2xx to a create. Raises OutcomeUnknown: it does not say what was made."""
    value = decoded_order(reply, PROVIDER)
    made = created_instance(at(value, "id"), POD_ID, PROVIDER)
    return msgspec.structs.replace(made, starting=str(at(value, "status")) not in _DEAD)


def _check(order: Order, registry_id: str | None) -> None:
    unsaved = order.registry is not None and registry_id is None
    reasons = {
        "nothing is rented by bids there any more": order.bid_usd_hour is not None,
        'self_destruct needs an onstart and another runtype than "args"': _cannot_end_itself(order),
        "neither an image nor a template is named": not order.image and not order.template,
        f"the label has not 1 to {LABEL_LENGTH} characters": not 1 <= len(order.label) <= LABEL_LENGTH,
        "it takes the id of credentials that are saved there: set options.registry_id": unsaved,
        f"no such runtype; known are {', '.join(filter(None, _RUNTYPES))}": order.runtype not in _RUNTYPES,
        "that is no size of a disk": not math.isfinite(order.disk_gb) or order.disk_gb > 1e6,
    }
    refuse(PROVIDER, reasons)


def _cannot_end_itself(order: Order) -> bool:
    """A command of ours would take the place of the image's own, and who serves by that would serve no longer."""
    return order.self_destruct_at is not None and (not order.onstart or order.runtype == "args")


def _ports(order: Order) -> list[str]:
    """Container ports as the wire spells them; what they are outside, RunPod chooses."""
    found = dict.fromkeys(_RUNTYPES[order.runtype])
    for port in order.ports:
        if ":" in port:
            raise not_sent(
                PROVIDER, f"port {port[:20]!r}: the port outside cannot be chosen there; name the one inside alone"
            )
        if not _PORT.fullmatch(port) or int(port) > 65_535:
            raise not_sent(PROVIDER, f"port {port[:20]!r}: only TCP ports are opened there")
        found[f"{port}/tcp"] = None
    return list(found)


def _command(order: Order, now: datetime) -> list[str] | None:
    """What the container runs instead of the image's command, in exec form; with runtype `args` as it stands."""
    if not order.onstart:
        return None
    if order.runtype != "args":
        server = _SSH_SERVER if order.needs_ssh else ""
        ends = "" if order.self_destruct_at is None else self_destruct_lines(order.self_destruct_at, now)
        return ["bash", "-c", ends + _BESIDE + server + order.onstart + _AFTER]
    try:
        return shlex.split(order.onstart)
    except ValueError:
        raise not_sent(
            PROVIDER, 'onstart has a quote that is not closed; with runtype "args" it is a command'
        ) from None


def _host_needs(options: Mapping[str, Option]) -> dict[str, Any]:
    """Placement filters, for each GPU."""
    needs = {wire: options.get(name) for name, wire in _HOST_NEEDS.items()}
    return {wire: value for wire, value in needs.items() if value is not None}


def _mounts(volume: Volume, wanted: PodPlacement) -> dict[str, Any]:
    """A network volume by its id, or a new volume disk at the host."""
    if not volume.mount.startswith("/") or any(character.isspace() for character in volume.mount):
        raise not_sent(PROVIDER, "a volume's mount is an absolute path without blanks")
    if volume.volume_id is not None and volume.size_gb is None:
        if wanted.place is None:
            raise not_sent(PROVIDER, "a network volume needs an offer that names its data centre")
        if not POD_ID.fullmatch(volume.volume_id):
            raise not_sent(PROVIDER, "that is no id of a network volume")
        return {"network": [{"volumeId": volume.volume_id, "path": volume.mount}]}
    if volume.volume_id is None and volume.size_gb is not None and volume.size_gb >= _LEAST_VOLUME_GB:
        return {"persistent": {"size": math.ceil(volume.size_gb), "path": volume.mount}}
    raise not_sent(PROVIDER, f"a volume needs its volume_id, or a size_gb of at least {_LEAST_VOLUME_GB}, and not both")
