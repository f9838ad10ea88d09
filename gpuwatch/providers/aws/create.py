"""The request for one machine, and its answer. Pure; never logged, because it contains secrets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from math import ceil, isfinite
from typing import Any, Final

from gpuwatch.errors import OrderRefused, OutcomeUnknown, RefusalKind, RefusalScope
from gpuwatch.ports import Created, Order
from gpuwatch.ports.settings import Option
from gpuwatch.providers.aws.images import image_of, image_problem
from gpuwatch.providers.aws.network import NetworkOptions, network_options, network_request
from gpuwatch.providers.aws.offers import OfferId
from gpuwatch.providers.aws.user_data import user_data
from gpuwatch.providers.toolkit.basic_launcher import not_sent, refuse
from gpuwatch.providers.toolkit.validation import at, objects

PROVIDER: Final = "aws"
_NO_IMAGE_S: Final = 3600.0  # a person must set another image
TAG_LABEL: Final = "gpuwatch-label"
TAG_BID: Final = "gpuwatch-bid"
TAG_DISK: Final = "gpuwatch-disk-gb"
INSTANCE_ID: Final = re.compile(r"i-[0-9a-f]{8,17}")
_LABEL_LENGTH: Final = 255  # of a tag's value
_MAX_DISK_GB: Final = 16_384
_MAX_BID_USD: Final = 10_000.0


def run_request(
    order: Order, offer: OfferId, options: Mapping[str, Option], now: datetime, group: str | None = None
) -> dict[str, Any]:
    """Build the parameters of `RunInstances`.

    The client token consists of label and offer: EC2 creates one machine for it, however often it is sent.

    Args:
        group: the security group that gpuwatch created in the region; None: none.

    Raises:
        OrderRefused: the order does not fit into a request.
    """
    _check(order, offer, options)
    tags = [{"Key": key, "Value": value} for key, value in _tags(order).items()]
    request: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": offer.type,
        "ImageId": image_of(options, offer.type),
        "ClientToken": hashlib.sha256(f"{order.label} {order.offer_id}".encode()).hexdigest(),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    }
    optional: dict[str, Any] = {
        "BlockDeviceMappings": _disk(order.disk_gb, options) if order.disk_gb else None,
        "KeyName": options.get("key_name"),
        "IamInstanceProfile": {"Name": options["instance_profile"]} if options.get("instance_profile") else None,
        "UserData": _user_data(order, now) or None,
        "InstanceMarketOptions": None if order.bid_usd_hour is None else _spot(order.bid_usd_hour),
    }
    request |= network_request(_network(options), offer.region, offer.zone, group)
    return request | {key: value for key, value in optional.items() if value is not None}


def parse_created(answer: Mapping[str, Any], region: str) -> Created:
    """Return the receipt. Raises OutcomeUnknown."""
    instances = objects(answer.get("Instances"))
    instance_id = at(instances[0], "InstanceId") if len(instances) == 1 else None
    if not isinstance(instance_id, str) or not INSTANCE_ID.fullmatch(instance_id):
        raise OutcomeUnknown(f"aws: {region}: an unexpected answer")
    return Created(instance_id=f"{region}/{instance_id}")


def parse_instance_id(text: str) -> tuple[str, str]:
    """Return the region and EC2's own id. Raises OrderRefused."""
    region, _, instance_id = text.partition("/")
    if not re.fullmatch(r"[a-z0-9-]{4,25}", region) or not INSTANCE_ID.fullmatch(instance_id):
        raise not_sent(PROVIDER, "invalid instance id; expected one such as us-east-1/i-0123456789abcdef0")
    return region, instance_id


def _check(order: Order, offer: OfferId, options: Mapping[str, Option]) -> None:
    if offer.spot is not (order.bid_usd_hour is not None):
        raise not_sent(PROVIDER, "a spot offer requires a bid, and other offers accept none")
    if order.bid_usd_hour is not None and not (isfinite(order.bid_usd_hour) and 0 < order.bid_usd_hour < _MAX_BID_USD):
        raise OrderRefused(f"aws: nothing was sent: invalid bid {order.bid_usd_hour}", RefusalKind.BID_TOO_LOW)
    problem = image_problem(options, offer.type)
    if problem is not None:
        raise not_sent(PROVIDER, " → ".join(problem), RefusalScope.MACHINE, _NO_IMAGE_S)
    unsupported = {
        "ports: the security group opens them": order.ports,
        "template": order.template,
        "registry: EC2 starts a machine, not a container": order.registry,
        "volume": order.volume,
        f"runtype {order.runtype!r}: only ssh is possible": not order.runtype.startswith("ssh"),
    }
    is_disk_valid = isfinite(order.disk_gb) and 0 <= order.disk_gb <= _MAX_DISK_GB
    sizes = {
        f"a disk of {order.disk_gb} GB; EC2 supports up to {_MAX_DISK_GB}": not is_disk_valid,
        f"the label is longer than {_LABEL_LENGTH} characters": len(order.label) > _LABEL_LENGTH,
    }
    refuse(
        PROVIDER,
        sizes | {f"AWS does not support this part of the watch: {what}": value for what, value in unsupported.items()},
    )


def _tags(order: Order) -> dict[str, str]:
    tags = {"Name": order.label, TAG_LABEL: order.label, TAG_DISK: str(ceil(order.disk_gb))}
    return tags if order.bid_usd_hour is None else tags | {TAG_BID: _format_usd(order.bid_usd_hour)}


def _disk(disk_gb: float, options: Mapping[str, Option]) -> list[dict[str, Any]]:
    """Return the root disk if its size differs from the image's. EC2 refuses a disk that is smaller than the image."""
    disk = {"VolumeSize": ceil(disk_gb), "VolumeType": "gp3", "DeleteOnTermination": True}
    return [{"DeviceName": str(options.get("root_device")), "Ebs": disk}]


def _network(options: Mapping[str, Option]) -> NetworkOptions:
    try:
        return network_options(options)
    except ValueError as error:
        raise not_sent(PROVIDER, str(error)) from None


def _user_data(order: Order, now: datetime) -> str:
    try:
        return user_data(order.onstart, order.env, order.self_destruct_at, now)
    except ValueError as error:
        raise not_sent(PROVIDER, str(error)) from None


def _spot(bid_usd_hour: float) -> dict[str, Any]:
    """Return a one-time request that is terminated when interrupted: the disk of a stopped machine would be billed."""
    return {
        "MarketType": "spot",
        "SpotOptions": {
            "MaxPrice": _format_usd(bid_usd_hour),
            "SpotInstanceType": "one-time",
            "InstanceInterruptionBehavior": "terminate",
        },
    }


def _format_usd(usd: float) -> str:
    return f"{usd:.6f}"
