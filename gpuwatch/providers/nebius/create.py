"""The create request of Nebius, and the parts of an offer's id. Pure; nothing here is logged, it contains secrets."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuwatch.ports import Order
from gpuwatch.ports.settings import Option
from gpuwatch.providers.nebius import INFO
from gpuwatch.providers.nebius.client import PROVIDER, api
from gpuwatch.providers.nebius.market import MIN_DISK_GB
from gpuwatch.providers.toolkit.basic_launcher import not_sent, refuse_beyond_machine
from gpuwatch.providers.toolkit.first_boot import first_boot_script, shutdown_timer

_OFFER: Final = re.compile(r"([a-z0-9.-]{1,40})/([a-z0-9.-]{1,40})/([a-z0-9-]{1,30})(/spot)?")
PUBLIC_KEY: Final = re.compile(r"(ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n]{0,200})?")
_SCRIPT: Final = "/root/gpuwatch-first-boot"


class OfferParts(NamedTuple):
    """The parts of an offer id."""

    platform: str
    preset: str
    region: str
    spot: bool


def parse_offer_id(offer_id: str) -> OfferParts | None:
    """Parse an offer id; None: it is not an id of Nebius."""
    found = _OFFER.fullmatch(offer_id)
    return None if found is None else OfferParts(found[1], found[2], found[3], found[4] is not None)


def create_request(
    order: Order, parts: OfferParts, project: str, subnet: str, options: Mapping[str, Option], now: datetime
) -> dict[str, Any]:
    """Return the values of a CreateInstanceRequest; the label is the instance's name.

    Raises:
        OrderRefused: BAD_ORDER, Nebius does not support it.
    """
    ssh_key = options.get("ssh_key")
    if not isinstance(ssh_key, str) or not PUBLIC_KEY.fullmatch(ssh_key.strip()):
        raise not_sent(
            PROVIDER, f'a public SSH key is required: add ssh_key = "ssh-ed25519 …" to [providers.{PROVIDER}.options]'
        )
    extra_reasons = {
        "a spot offer requires a bid, and other offers accept none": parts.spot is not (order.bid_usd_hour is not None)
    }
    refuse_beyond_machine(
        order, PROVIDER, INFO.title, extra_reasons, label_length=INFO.label_length, takes_bids=True, ends_itself=True
    )
    labels = {"managed-by": "gpuwatch"}
    metadata = api("common.v1").ResourceMetadata(parent_id=project, name=order.label, labels=labels)
    cloud_init = user_data(order, ssh_key.strip(), now)
    return {"metadata": metadata, "spec": _instance_spec(order, parts, subnet, str(options.get("image")), cloud_init)}


def _instance_spec(order: Order, parts: OfferParts, subnet: str, image: str, cloud_init: str) -> Any:
    compute = api("compute.v1")
    disk = compute.DiskSpec(
        size_gibibytes=math.ceil(max(order.disk_gb, MIN_DISK_GB)),
        type=compute.DiskSpec.DiskType.NETWORK_SSD,
        source_image_family=compute.SourceImageFamily(image_family=image),
    )
    spot = {
        "preemptible": compute.PreemptibleSpec(on_preemption=compute.PreemptibleSpec.PreemptionPolicy.STOP),
        "follows_spot_price": compute.FollowsSpotPriceSpec(),
    }
    return compute.InstanceSpec(
        resources=compute.ResourcesSpec(platform=parts.platform, preset=parts.preset),
        boot_disk=compute.AttachedDiskSpec(
            attach_mode=compute.AttachedDiskSpec.AttachMode.READ_WRITE,
            managed_disk=compute.ManagedDisk(name=f"{order.label[:58]}-disk", spec=disk),
        ),
        network_interfaces=[
            compute.NetworkInterfaceSpec(
                name="eth0",
                subnet_id=subnet,
                ip_address=compute.IPAddress(),
                public_ip_address=compute.PublicIPAddress(),
            )
        ],
        cloud_init_user_data=cloud_init,
        recovery_policy=compute.InstanceRecoveryPolicy.FAIL,  # a machine that has shut itself down must not restart
        **(spot if parts.spot else {}),
    )


def user_data(order: Order, ssh_key: str, now: datetime) -> str:
    """Return cloud-init's configuration: the login, and a script for the first boot. JSON is valid YAML."""
    config: dict[str, Any] = {"ssh_authorized_keys": [ssh_key]}
    timer = "" if order.self_destruct_at is None else shutdown_timer(order.self_destruct_at, now)
    script = first_boot_script(order.onstart, order.env)
    if timer or script:
        combined = f"{timer}{script}" if not timer else f"#!/bin/bash\n{timer}{script or ''}"
        text = b64encode(combined.encode()).decode()
        config["write_files"] = [{"path": _SCRIPT, "permissions": "0700", "encoding": "b64", "content": text}]
        config["runcmd"] = [["/bin/bash", _SCRIPT]]
    return f"#cloud-config\n{json.dumps(config)}\n"
