"""The create request, and what its answer means. Pure; nothing here is logged, for it holds secrets.

source: REST v2 specification 2.0.0 (a field that it does not know is refused with 422).
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Any, Final

import msgspec

from gpuwatch.errors import OrderRefused, OutcomeUnknown, RefusalKind
from gpuwatch.ports import Created, Order, Volume
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.runpod.offer_ids import PodPlacement, read_offer_id
from gpuwatch.providers.toolkit.validation import UNREADABLE

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
# `args` takes the place of the image's own command, and a container that ends is started again and again. So the
# image's usual start (it brings up sshd and Jupyter in images that follow the provider's convention) runs beside the
# script, and what remains when that ends is a pod that idles.
_BESIDE: Final = "if [ -x /start.sh ]; then /start.sh & fi\n"
_AFTER: Final = "\nexec sleep infinity"


def bad_order(what: str) -> OrderRefused:
    """An order that is not sent."""
    return OrderRefused(f"runpod: nothing was sent: {what}", RefusalKind.BAD_ORDER)


def create_body(order: Order, registry_id: str | None) -> dict[str, Any]:
    """The create request.

    Args:
        registry_id: of credentials that are saved at RunPod.

    Raises:
        OrderRefused: BAD_ORDER, RunPod cannot do what it asks for.
    """
    wanted = read_offer_id(order.offer_id)
    if wanted is None:
        raise bad_order("that is no id of an offer there")
    _check(order, registry_id)
    body: dict[str, Any] = {
        "name": order.label,
        "gpu": {"id": wanted.gpu_id, "count": wanted.count},
        "cloud": wanted.cloud,
        "disk": max(math.ceil(order.disk_gb), 1),
        "env": dict(order.env),
    }
    optional = {
        "image": order.image or None,
        "templateId": order.template or None,
        "dataCenterIds": [wanted.place] if wanted.place is not None else None,
        "ports": _ports(order) or None,
        "args": _args(order),
        "registry": registry_id,
        "mounts": None if order.volume is None else _mounts(order.volume, wanted),
        "startSsh": True if "ssh" in order.runtype or "jupyter" in order.runtype else None,
        "startJupyter": True if "jupyter" in order.runtype else None,
    }
    return body | {key: value for key, value in optional.items() if value is not None}


def created(reply: HttpReply) -> Created:
    """The receipt in a 2xx to a create. Raises OutcomeUnknown: it does not say what was made."""
    try:
        value = msgspec.json.decode(reply.body)
    except UNREADABLE as error:
        raise OutcomeUnknown("runpod: the answer to the create is not JSON: it may have been made") from error
    pod_id = value.get("id") if isinstance(value, dict) else None
    if not isinstance(pod_id, str) or not POD_ID.fullmatch(pod_id):
        raise OutcomeUnknown("runpod: the answer to the create names no pod: it may have been made")
    return Created(instance_id=pod_id, starting=str(value.get("status")) not in _DEAD)


def _check(order: Order, registry_id: str | None) -> None:
    refusals = (
        (order.bid_usd_hour is not None, "nothing is rented by bids there any more"),
        (order.self_destruct_at is not None, "a RunPod pod cannot end itself at a set time"),
        (not order.image and not order.template, "neither an image nor a template is named"),
        (not order.label or len(order.label) > LABEL_LENGTH, f"the label has not 1 to {LABEL_LENGTH} characters"),
        (
            order.registry is not None and registry_id is None,
            "it takes the id of credentials that are saved there: set options.registry_id",
        ),
        (order.runtype not in _RUNTYPES, f"no such runtype; known are {', '.join(filter(None, _RUNTYPES))}"),
        (not math.isfinite(order.disk_gb) or order.disk_gb > 1e6, "that is no size of a disk"),
    )
    for is_so, what in refusals:
        if is_so:
            raise bad_order(what)


def _ports(order: Order) -> list[str]:
    """Container ports as the wire spells them; what they are outside, RunPod chooses."""
    found = dict.fromkeys(_RUNTYPES[order.runtype])
    for port in order.ports:
        if ":" in port:
            raise bad_order(f"port {port[:20]!r}: the port outside cannot be chosen there; name the one inside alone")
        if not _PORT.fullmatch(port) or int(port) > 65_535:
            raise bad_order(f"port {port[:20]!r}: only TCP ports are opened there")
        found[f"{port}/tcp"] = None
    return list(found)


def _args(order: Order) -> str | None:
    """What the container runs instead of the image's command; with runtype `args` as it stands."""
    if not order.onstart:
        return None
    if order.runtype == "args":
        return order.onstart
    return "bash -c " + shlex.quote(_BESIDE + order.onstart + _AFTER)


def _mounts(volume: Volume, wanted: PodPlacement) -> dict[str, Any]:
    """A network volume by its id, or a new volume disk at the host."""
    if not volume.mount.startswith("/") or any(character.isspace() for character in volume.mount):
        raise bad_order("a volume's mount is an absolute path without blanks")
    if volume.volume_id is not None and volume.size_gb is None:
        if wanted.place is None:
            raise bad_order("a network volume needs an offer that names its data centre")
        if not POD_ID.fullmatch(volume.volume_id):
            raise bad_order("that is no id of a network volume")
        return {"network": [{"volumeId": volume.volume_id, "path": volume.mount}]}
    if volume.volume_id is None and volume.size_gb is not None and volume.size_gb >= _LEAST_VOLUME_GB:
        return {"persistent": {"size": math.ceil(volume.size_gb), "path": volume.mount}}
    raise bad_order(f"a volume needs its volume_id, or a size_gb of at least {_LEAST_VOLUME_GB}, and not both")
